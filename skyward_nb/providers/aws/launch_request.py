"""The arguments of RunInstances for the machines of one pool, and the resources that they name.

Subnets, groups and images of a region are looked up once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from skyward_nb.providers.aws import disk_prices, elastic_addresses, end_timers, network
from skyward_nb.providers.aws.api_errors import AWSError
from skyward_nb.providers.aws.callers import callers_for
from skyward_nb.providers.aws.client import Answer, Arguments, AWSClient
from skyward_nb.providers.aws.images import MachineImage, image_for
from skyward_nb.providers.aws.network_cards import fewer_cards, one_card_if_warm
from skyward_nb.providers.aws.offer_walk import ZoneAttempt
from skyward_nb.providers.aws.rental_records import RentalFolder, RunningInstance
from skyward_nb.providers.aws.tags import tagged
from skyward_nb.providers.aws.user_data import BOOT, lease_for, script_for
from skyward_nb.providers.ssh.private_keys import KeyPair
from skyward_nb.words.provider_access import AWSAccess
from skyward_nb.words.spec import PoolSpec

_METADATA = {"HttpEndpoint": "enabled", "HttpTokens": "required", "HttpPutResponseHopLimit": 1}
_SPOT = {
    "MarketType": "spot",
    "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
}


class LaunchRequest:
    """The request of one pool: `pair` is for logins, `host` is the host key until the first login.

    `others` are machines of the pool that the new ones join.
    """

    def __init__(
        self,
        spec: PoolSpec,
        cloud: AWSClient,
        entry: RentalFolder,
        pair: KeyPair,
        host: KeyPair,
        others: Sequence[RunningInstance] = (),
    ) -> None:
        assert spec.aws is not None
        self.spec: PoolSpec = spec
        self.cloud: AWSClient = cloud
        self.entry: RentalFolder = entry
        self._access: AWSAccess = spec.aws
        self._pair = pair
        self._host = host
        self._others = others
        self._subnets: dict[str, network.PoolSubnets] = {}
        self._groups: dict[str, str] = {}
        self._images: dict[tuple[str, str, bool], MachineImage] = {}
        self._disk_prices: dict[tuple[str, int], float | None] = {}
        self.user: str = ""
        """The user of the image of the last request."""
        self.fewer_cards: str = ""
        """Why the machines of the last request use one of their network cards, in words; "" if they use all."""
        self._addresses: elastic_addresses.ElasticAddresses | None = None

    async def arguments(self, now: ZoneAttempt, spent: float) -> Arguments:
        """The arguments for one zone, after `spent` dollars for machines that ended. Raises `AWSError`."""
        kind, region = now.offer.type, now.offer.region
        if region not in self._subnets:
            self._subnets[region] = await network.subnets_in(self.cloud, self._access, region)
        subnets = self._subnets[region]
        zone = now.zone or next(iter(subnets.by_zone))
        if zone not in subnets.by_zone:
            why = f"the VPC has no default subnet in {zone}"
            if self._access.subnet:
                why = f"subnet={','.join(self._access.subnet)} is in {', '.join(subnets.by_zone)}"
            raise AWSError("InvalidAvailabilityZone", why, "DescribeSubnets")
        # Both are awaited even if one fails, so that the record has the other's resources.
        image, group = await asyncio.gather(
            self._image(now), self._group(region, subnets), return_exceptions=True
        )
        if isinstance(image, BaseException):
            raise image
        if isinstance(group, BaseException):
            raise group
        self.user = image.user
        if self._access.warm is not None:
            await self._warm(region, image)
        several = self.spec.nodes + len(self._others) > 1 and self._access.placement != "no"
        cards = await self._cards(now, subnets, zone, group, efa=several and kind.efa)
        arguments: Arguments = {
            "ImageId": image.ami,
            "InstanceType": kind.name,
            "MinCount": self.spec.nodes,
            "MaxCount": self.spec.nodes,
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions": _METADATA,
            "BlockDeviceMappings": [
                _disk(
                    image.root,
                    max(self._access.disk, image.size),
                    **_speed(self._access.throughput),
                ),
                # By itself, an image may keep its disks after the end.
                *(_disk(name, size, **_speed(None)) for name, size in image.others),
            ],
            "NetworkInterfaces": cards,
            "Placement": {"AvailabilityZone": zone},
            "UserData": self._script(now, image, spent),
            "TagSpecifications": tagged(
                ["instance", "volume", "network-interface"], self.entry.record
            ),
        }
        # A placement group is of one zone.
        is_beside = all(each.zone == zone for each in self._others)
        # A reservation made outside the group matches no machine within it; a capacity block is side by side itself.
        reserved = _reserved(self._access)
        if several and is_beside and not reserved and network.fits_side_by_side(kind):
            name = await network.placement_in(self.cloud, self.entry, region, zone)
            arguments["Placement"]["GroupName"] = name
        if now.offer.spot:
            arguments["InstanceMarketOptions"] = _SPOT
        arguments |= reserved
        if (role := self._access.instance_profile) is not None:
            field = "Arn" if role.startswith("arn:") else "Name"
            arguments["IamInstanceProfile"] = {field: role}
        return arguments

    async def _cards(
        self, now: ZoneAttempt, subnets: network.PoolSubnets, zone: str, group: str, *, efa: bool
    ) -> list[Arguments]:
        """The network cards of a machine; raises `AWSError`."""
        is_public = zone not in subnets.private
        cards = network.cards_for(
            now.offer.type,
            subnets.by_zone[zone],
            group,
            efa=efa,
            is_public=is_public,
            asked=self._access.public_ip,
        )
        self._addresses, self.fewer_cards = None, ""
        return await self._reachable(cards, now) if is_public and len(cards) > 1 else cards

    async def _reachable(self, cards: list[Arguments], now: ZoneAttempt) -> list[Arguments]:
        """Of several cards, those of a machine that has a public address: one, where the account may have no more."""
        if self._access.warm is not None:
            # An Elastic IP address would be charged for as long as they are stopped, and outlive the timer.
            self.fewer_cards = one_card_if_warm(now.offer.type)
        else:
            try:
                self._addresses = await elastic_addresses.reserve(
                    self.cloud, self.entry, now.offer.region, self.spec.nodes
                )
            except AWSError as fault:
                if fault.code != elastic_addresses.NO_MORE:
                    raise
                self.fewer_cards = fewer_cards(now.offer.type)
            else:
                return cards
        return [{**cards[0], "AssociatePublicIpAddress": True}]

    async def has_addresses(self, machines: Sequence[Answer]) -> None:
        """Give machines that run the public addresses that EC2 does not give them. Raises `AWSError`."""
        if self._addresses is not None:
            await self._addresses.give(machines)

    def address(self, instance: Answer, region: str) -> str | None:
        """The address of a machine for this side, once it has one."""
        zone = str(instance["Placement"]["AvailabilityZone"])
        is_public = zone not in self._subnets[region].private and not self._access.jump
        return instance.get("PublicIpAddress" if is_public else "PrivateIpAddress")

    def running(self, instance: Answer, now: ZoneAttempt) -> RunningInstance:
        """A machine of this request, from EC2's description."""
        price = now.offer.price
        return RunningInstance(
            instance=str(instance["InstanceId"]),
            region=now.offer.region,
            zone=str(instance["Placement"]["AvailabilityZone"]),
            type=now.offer.type.name,
            spot=now.offer.spot,
            price=None if price is None else price.dollars,
            # A jump host is on their network.
            public=None if self._access.jump else instance.get("PublicIpAddress") or None,
            private=str(instance["PrivateIpAddress"]),
            host_key=self._host.public,
        )

    def _script(self, now: ZoneAttempt, image: MachineImage, spent: float) -> str:
        lease = lease_for(self.spec, now.offer.hourly(self.spec.nodes), spent)
        if lease.deadline:
            deadline = time.time() + lease.deadline + BOOT
            self.entry.note(deadline=max(deadline, self.entry.record.deadline or 0.0))
        return script_for(
            image.user,
            lease,
            authorized=self._pair.public,
            private=self._host.private,
            public=self._host.public,
        )

    async def _warm(self, region: str, image: MachineImage) -> None:
        """Make the timers that end stopped machines, and note what their disks are, and cost.

        At the pool's end there is no time to ask for prices.
        """
        count = self.spec.nodes + len(self._others)
        await end_timers.make(self.cloud, self.entry, region, count)
        if self.entry.record.warmth is not None and not self.entry.record.machines:
            sizes = [max(self._access.disk, image.size), *(size for _, size in image.others)]
            size = self.spec.nodes * sum(sizes)
            if (region, size) not in self._disk_prices:
                price = await disk_prices.hourly(self.cloud, region, size)
                self._disk_prices[region, size] = price
            price = self._disk_prices[region, size]
            self.entry.note(warmth=replace(self.entry.record.warmth, gigabytes=size, price=price))

    async def _image(self, now: ZoneAttempt) -> MachineImage:
        kind, region = now.offer.type, now.offer.region
        key = region, kind.arch, kind.gpus > 0
        if key not in self._images:
            self._images[key] = await image_for(self.cloud, self._access, kind, region)
        return self._images[key]

    async def _group(self, region: str, subnets: network.PoolSubnets) -> str:
        if self._access.security_group:
            return self._access.security_group
        if region not in self._groups:
            jump, named = self._access.jump or "", self._access.caller
            inside = subnets.inside if jump or subnets.private else ""
            callers = await callers_for(jump, named, inside)
            self.entry.note(let_in=callers)
            self._groups[region] = await network.group_in(
                self.cloud, self.entry, region, subnets.vpc, callers
            )
        return self._groups[region]


def _reserved(access: AWSAccess) -> Arguments:
    """What names the capacity that the account has reserved; a block of it is a market of its own."""
    found = access.capacity_block or access.reservation
    if found is None:
        return {}
    arguments: Arguments = {
        "CapacityReservationSpecification": {
            "CapacityReservationTarget": {"CapacityReservationId": found}
        }
    }
    if access.capacity_block:
        arguments["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
    return arguments


def _speed(throughput: int | None) -> Arguments:
    """The kind of a disk that reads and writes so many MiB/s.

    A gp3 has 125 MiB/s and 3,000 operations a second by itself, and at most 1 MiB/s for four of these.
    Source: https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html.
    """
    if throughput is None:
        return {"VolumeType": "gp3"}
    return {"VolumeType": "gp3", "Throughput": throughput, "Iops": max(3000, 4 * throughput)}


def _disk(name: str, size: int, **more: Any) -> Arguments:
    """An encrypted disk of so many GB that is removed with its machine."""
    disk = {"VolumeSize": size, "Encrypted": True, "DeleteOnTermination": True, **more}
    return {"DeviceName": name, "Ebs": disk}
