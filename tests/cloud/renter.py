"""Who launches pools by the API alone, as a provider does, and hears what is told."""

from __future__ import annotations

import asyncio
import time

from cloud.sky import Called
from cloud.sky import Cloud as Sky

from skyward_nb.protocol.events import Remark, Step
from skyward_nb.providers.aws import client, rental_records, termination
from skyward_nb.providers.aws.launch import Launch
from skyward_nb.providers.aws.launch_request import LaunchRequest
from skyward_nb.providers.ssh.private_keys import new_pair
from skyward_nb.words.offers import InstanceType, Offer, Price
from skyward_nb.words.provider_access import AWSAccess
from skyward_nb.words.spec import PoolSpec

CPU = InstanceType(name="c6i.large", arch="x86_64", cpus=2, memory=4)
OTHER = InstanceType(name="c5.large", arch="x86_64", cpus=2, memory=4)
GPU = InstanceType(
    name="p4d.24xlarge", arch="x86_64", cpus=96, memory=1152, gpu="A100", gpus=8, gpu_memory=40,
    efa=True, network_cards=4,
)  # fmt: skip


def offer(kind=CPU, region="us-east-1", zones="ab", *, spot=False):
    price = Price(dollars=0.1, source="a test", spot=spot)
    names = tuple(region + letter for letter in zones)
    return Offer(type=kind, region=region, zones=names, spot=spot, price=price)


class Renter:
    """Launches a pool as a provider does, and hears what is told."""

    def __init__(self, pool_id: str = "default-abc", **options: object) -> None:
        access = options.pop("aws", AWSAccess(region="us-east-1"))
        self.spec = PoolSpec(provider="aws", aws=access, **{"nodes": 2, **options})
        self.cloud = client.AWSClient.of(access)
        self.told: list[str] = []
        self.entry = rental_records.RentalFolder.begin(
            rental_records.RentalRecord(
                pool_id=pool_id, name="default", owner=rental_records.owner(), maker=rental_records.MakerProcess.this(),
                created=time.time(),
            )
        )  # fmt: skip

    def launch(self, *offers: Offer):
        pair, host = new_pair("skyward_nb"), new_pair("")
        self.work = Launch(LaunchRequest(self.spec, self.cloud, self.entry, pair, host), self._hear)
        self.machines = asyncio.run(self.work.run(offers or (offer(),)))
        self.entry.note(machines=self.machines)
        return self.machines

    def end(self) -> termination.Leftovers:
        return asyncio.run(termination.end(self.cloud, self.entry))

    def _hear(self, said: object) -> None:
        if isinstance(said, Step | Remark):
            self.told.append(said.text)

    def words(self) -> str:
        return "\n".join(self.told)


def launches(api: Sky) -> list[Called]:
    """The launches that were asked for."""
    return [call for call in api.calls if call.action == "RunInstances"]
