"""Elastic IP addresses for machines with several network cards, which EC2 gives no public address by itself.

A pool's are found by its tag. They are recorded before the first is allocated, and released with the pool: one that
no machine has costs as much as one that is used. Source:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/elastic-ip-addresses-eip.html.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence

from skyward_nb.providers.aws.api_errors import AWSError
from skyward_nb.providers.aws.client import Answer, AWSClient
from skyward_nb.providers.aws.rental_records import CreatedResource, RentalFolder
from skyward_nb.providers.aws.tags import of_pool, tagged

_UNUSED = {"InvalidAssociationID.NotFound"}
_GONE = {"InvalidAllocationID.NotFound", "InvalidAddressID.NotFound", "InvalidAddress.NotFound"}
IN_USE = "InvalidIPAddress.InUse"
NO_MORE = "AddressLimitExceeded"


class ElasticAddresses:
    """Addresses for the machines of one launch in a `region`, by the `ids` of their allocations."""

    def __init__(self, cloud: AWSClient, region: str, ids: Sequence[str]) -> None:
        self._cloud = cloud
        self._region = region
        self._left = list(ids)
        self._given: set[str] = set()

    async def give(self, machines: Sequence[Answer]) -> None:
        """Each of these running machines gets one, once, on its first card. Raises `AWSError`."""
        for each in machines:
            if each["InstanceId"] in self._given:
                continue
            with contextlib.suppress(IndexError):  # EC2 has launched no more than were asked for
                await self._associate(self._left.pop(0), _first_card(each))
            self._given.add(each["InstanceId"])

    async def _associate(self, address: str, card: str) -> None:
        # Where a first answer was lost, and boto3 asks again, it is the pool's own already.
        await self._cloud.ask(
            "AssociateAddress",
            self._region,
            AllocationId=address,
            NetworkInterfaceId=card,
            AllowReassociation=True,
        )


def _first_card(machine: Answer) -> str:
    """The id of the interface on a machine's first network card."""

    def place(card: Answer) -> tuple[int, int]:
        at = card.get("Attachment", {})
        return int(at.get("NetworkCardIndex", 0)), int(at.get("DeviceIndex", 0))

    return str(min(machine["NetworkInterfaces"], key=place)["NetworkInterfaceId"])


async def reserve(
    cloud: AWSClient, entry: RentalFolder, region: str, count: int
) -> ElasticAddresses:
    """So many addresses of a pool that no machine has, allocated if need be; raises `AWSError`."""
    pool_id = entry.record.pool_id
    found = await _found(cloud, region, pool_id)
    free = [str(each["AllocationId"]) for each in found if not each.get("AssociationId")]
    # What may not be asked for cannot be there: it is recorded only now.
    entry.make(CreatedResource("address", region, pool_id))
    while len(free) < count:
        tags = tagged(["elastic-ip"], entry.record)
        said = await cloud.ask("AllocateAddress", region, Domain="vpc", TagSpecifications=tags)
        free.append(str(said["AllocationId"]))
    return ElasticAddresses(cloud, region, free[:count])


async def release(cloud: AWSClient, region: str, pool_id: str) -> bool:
    """Release a pool's addresses; whether they are gone. Raises `AWSError`."""
    found = await _found(cloud, region, pool_id)
    return all([await _release(cloud, region, each) for each in found])


async def release_spare(cloud: AWSClient, entry: RentalFolder, ended: Collection[str] = ()) -> None:
    """Release the addresses of a pool that no machine has, or one that has `ended`; the pool's end tries again."""
    for made in entry.record.made:
        if made.kind == "address":
            with contextlib.suppress(AWSError):
                for each in await _found(cloud, made.region, made.name):
                    if not each.get("AssociationId") or each.get("InstanceId") in ended:
                        await _release(cloud, made.region, each)


async def _found(cloud: AWSClient, region: str, pool_id: str) -> list[Answer]:
    said = await cloud.ask("DescribeAddresses", region, Filters=[of_pool(pool_id)])
    return list(said["Addresses"])


async def _release(cloud: AWSClient, region: str, address: Answer) -> bool:
    """Release one address, also one that a machine has whose end has begun; False while it is in use."""
    try:
        if association := address.get("AssociationId"):
            await _let_go(cloud, region, str(association))
        await cloud.ask("ReleaseAddress", region, AllocationId=address["AllocationId"])
    except AWSError as fault:
        if fault.code == IN_USE:
            return False
        if fault.code not in _GONE:
            raise
    return True


async def _let_go(cloud: AWSClient, region: str, association: str) -> None:
    try:
        await cloud.ask("DisassociateAddress", region, AssociationId=association)
    except AWSError as fault:
        # EC2 does so itself when a machine has ended.
        if fault.code not in _UNUSED:
            raise
