"""Finds leftovers: records of processes that are gone, machines and groups without a record.

Only resources of this state folder are ended; those of other owners are reported. Machines of a pool that
somebody may still attach to are left to their own timers.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from skyward_nb.providers.aws import (
    elastic_addresses,
    image_sweep,
    rental_records,
    tags,
    termination,
)
from skyward_nb.providers.aws.api_errors import DENIED, AWSError, spell_fault
from skyward_nb.providers.aws.client import AWSClient
from skyward_nb.providers.aws.rental_records import (
    CreatedResource,
    RentalFolder,
    RentalRecord,
    UsedRegion,
)
from skyward_nb.providers.aws.stopping import RUNNING, STOPPED, spell_stopped
from skyward_nb.providers.folders import far_root

_LATE = 300.0
"""Seconds after its deadline when a sweep ends a machine."""
_ABROAD = 86400.0
"""Seconds after which an unfinished launch or end of another computer counts as abandoned."""

Clouds = dict[tuple[str | None, str | None], AWSClient]


@dataclass
class SweepReport:
    """Resources that a sweep ended, and those it left, in words, with the reasons."""

    machines: list[str] = field(default_factory=list[str])
    others: list[str] = field(default_factory=list[str])
    addresses: list[str] = field(default_factory=list[str])
    records: list[str] = field(default_factory=list[str])
    left: list[str] = field(default_factory=list[str])
    foreign: list[str] = field(default_factory=list[str])
    """Machines and images of other owners, which are not ended."""
    stopped: list[str] = field(default_factory=list[str])
    """Machines that wait for a later pool, until when, and what that costs."""
    images: list[str] = field(default_factory=list[str])
    """Images that were half made, or half removed, and snapshots without an image."""
    baked: list[str] = field(default_factory=list[str])
    """Images, which stay, and what they cost."""

    def __bool__(self) -> bool:
        return bool(self.machines or self.others or self.addresses or self.records or self.images)

    def __str__(self) -> str:
        parts: list[str] = []
        for names, one, more in (
            (self.machines, "machine", "s"),
            (self.others, "group", "s"),
            (self.addresses, "Elastic IP address", "es"),
            (self.records, "record", "s"),
            (self.images, "image", "s"),
        ):
            if names:
                parts.append(f"{len(names)} {one}{more * (len(names) != 1)} ({', '.join(names)})")
        if parts:
            said = [f"ended leftovers: {', '.join(parts)}"]
        else:
            stays = self.left or self.stopped or self.baked
            said = [] if stays else ["nothing was left"]
        said += [*self.stopped, *self.baked]
        if self.left:
            said.append(f"not confirmed to be gone: {', '.join(self.left)}")
        return "; ".join(said)


async def sweep(
    told: Callable[[str], None] = lambda _: None, *, ends_stopped: bool = False
) -> SweepReport:
    """Look in all regions that were ever used, and end leftovers; reports errors of AWS instead of raising.

    Machines that wait for a later pool are ended after their time, or with `ends_stopped` now.
    """
    found = SweepReport()
    clouds: Clouds = {}
    for entry in rental_records.entries():
        cloud = cloud_of(clouds, entry.record)
        told(f"checking pool {entry.record.pool_id}")
        try:
            if entry.record.state == "stopped":
                await _look_at_stopped(cloud, entry, found, is_over=ends_stopped)
            else:
                await _look_after(cloud, entry, found)
        except AWSError as fault:
            found.left.append(f"pool {entry.record.pool_id} ({spell_fault(fault)})")
    places = rental_records.used()
    told("looking for machines that no record has")
    await asyncio.gather(*(_look_in(cloud_of(clouds, each), each, found) for each in places))
    images = await image_sweep.look(partial(cloud_of, clouds))
    found.images, found.baked = images.removed, list(map(str, images.there))
    found.left += images.left
    found.foreign += images.foreign
    return found


async def machines_alive(name: str) -> list[str]:
    """The machines of recorded pools of this name that cost money now, or why AWS did not tell; ends none."""
    clouds: Clouds = {}
    states: dict[str, str] = {}
    try:
        for record in (each.record for each in rental_records.entries()):
            for region in record.regions if record.name == name else ():
                cloud = cloud_of(clouds, record)
                states |= await termination.states_of(cloud, region, record.pool_id)
    except AWSError as fault:
        return [spell_fault(fault)]
    return [each for each, state in states.items() if termination.is_alive(state)]


def cloud_of(clouds: Clouds, place: RentalRecord | UsedRegion) -> AWSClient:
    """The client with the credentials of a place."""
    key = place.profile, place.endpoint
    return clouds.setdefault(key, AWSClient(*key))


async def _look_after(cloud: AWSClient, entry: RentalFolder, found: SweepReport) -> None:
    """End a record's resources if they were to end, or their launch was abandoned. Raises `AWSError`."""
    record = entry.record
    is_begun = record.state in ("launching", "stopping")
    if is_begun and record.maker.may_live and not _is_forgotten(entry):
        return
    # Another account sees none of its machines, though they may run.
    is_elsewhere = bool(await termination.other_account(cloud, record))
    states: dict[str, str] = {}
    for region in record.regions:
        states |= await termination.states_of(cloud, region, record.pool_id)
    alive = [name for name, state in states.items() if termination.is_alive(state)]
    if record.state == "up" and not _is_late(entry):
        unseen = {each.instance for each in record.machines} - states.keys()
        is_conducted = record.maker.may_live
        is_there = (alive or is_elsewhere) and (is_conducted or _is_listed(record))
        may_appear = unseen and time.time() - record.created < termination.UNSEEN
        replaces = record.replaces and is_conducted and record.left_by != record.maker
        if is_there or may_appear or (replaces and not _is_over_elsewhere(entry)):
            return
    with rental_records.as_far_as_it_can():
        # Its maker, or a pool that starts its machines, may have gone on meanwhile.
        if not entry.claim(state=record.state if is_elsewhere else "ending"):
            return
    left = await termination.end(cloud, entry)
    if left:
        found.left.append(f"of pool {record.pool_id} {left}")
    found.machines += [name for name in alive if name not in left.machines]
    if not left:
        found.records.append(record.pool_id)


async def _look_at_stopped(
    cloud: AWSClient, entry: RentalFolder, found: SweepReport, *, is_over: bool
) -> None:
    """End stopped machines after their time, or those of which one is gone; else tell of them. Raises `AWSError`.

    Those that somebody has started are none of these: where the home was copied, another computer's pool may have them.
    """
    record, warmth = entry.record, entry.record.warmth
    if not await termination.other_account(cloud, record):
        region = record.machines[0].region
        states = await termination.states_of(cloud, region, record.pool_id)
        names = [each.instance for each in record.machines]
        is_mine = record.owner == rental_records.owner()
        if (runs := [each for each in names if states.get(each) in RUNNING]) and not (
            is_over and is_mine
        ):
            if not entry.claim():
                return  # a pool here starts them just now
            what = f"{', '.join(runs)}, stopped for a later pool, which somebody else has started"
            if is_mine:
                found.left.append(f"{what} (`%sky sweep now` ends them)")
            else:
                found.foreign.append(f"{what}, of {record.owner}")
            return
        is_over = is_over or not {*map(states.get, names)} <= {*STOPPED}
    if warmth is None or warmth.until is None or time.time() > warmth.until or is_over:
        await _look_after(cloud, entry, found)
        return
    found.stopped.append(f"for a later pool: {spell_stopped(record.machines, warmth)}")


def _is_listed(record: RentalRecord) -> bool:
    """Whether somebody may attach to a pool: it is listed while its agents live."""
    return Path(record.listing or far_root() / f"{record.pool_id}.json").exists()


def _is_over_elsewhere(entry: RentalFolder) -> bool:
    """Whether its maker is on another computer, where nobody can tell whether it lives, and has rented nothing for long."""
    is_long_ago = time.time() - entry.written > _ABROAD
    return is_long_ago and not entry.record.maker.is_here and not _is_listed(entry.record)


def _is_forgotten(entry: RentalFolder) -> bool:
    """Whether another computer began it, or its end, so long ago that it will not go on."""
    record = entry.record
    began = max(record.created, record.claimed)
    return not record.maker.is_here and time.time() - began > _ABROAD


def _is_late(entry: RentalFolder) -> bool:
    """Whether its machines should have ended; while its maker lives, a wrong clock ends nothing."""
    deadline = entry.record.deadline
    is_over = deadline is not None and time.time() > deadline + _LATE
    return is_over and not entry.record.maker.may_live


# ── what no record has ──────────────────────────────────────────────────────────────────


async def _look_in(cloud: AWSClient, place: UsedRegion, found: SweepReport) -> None:
    """End this owner's resources in a region that have no record."""
    try:
        await _end_machines(cloud, place.region, found)
        await _end_groups(cloud, place.region, found)
        await _release_addresses(cloud, place.region, found)
    except AWSError as fault:
        found.left.append(f"machines in {place.region} ({spell_fault(fault)})")


async def _end_machines(cloud: AWSClient, region: str, found: SweepReport) -> None:
    """End this owner's machines that have no record. Raises `AWSError`."""
    only = [
        tags.of_anybody(),
        {"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]},
    ]
    said = await cloud.ask_all("DescribeInstances", region, Filters=only)
    # Read after that: a record exists before its machines.
    mine, known = rental_records.owner(), rental_records.pool_ids()
    lost: list[str] = []
    for each in termination.instances_in(said):
        marks = tags.tags_in(each)
        name = str(each["InstanceId"])
        if marks.get(tags.OWNER) != mine:
            if any(name in each for each in found.foreign):
                continue  # by a record of it here, or by another profile
            found.foreign.append(f"{name} in {region} of {marks.get(tags.OWNER, 'nobody')}")
        elif marks[tags.POOL] not in known:
            lost.append(name)
    if lost:
        await cloud.ask("TerminateInstances", region, InstanceIds=lost)
        found.machines += lost


async def _end_groups(cloud: AWSClient, region: str, found: SweepReport) -> None:
    """Remove this owner's groups that have no record. Raises `AWSError`."""
    only = [{"Name": f"tag:{tags.OWNER}", "Values": [rental_records.owner()]}]
    groups = await cloud.ask("DescribeSecurityGroups", region, Filters=only)
    there = [
        (CreatedResource("group", region, str(each["GroupName"])), each)
        for each in groups["SecurityGroups"]
    ]
    with contextlib.suppress(AWSError):  # without the permission, there are none
        placed = await cloud.ask("DescribePlacementGroups", region, Filters=only)
        there += [
            (CreatedResource("placement", region, str(each["GroupName"])), each)
            for each in placed["PlacementGroups"]
        ]
    known = rental_records.pool_ids()
    for made, said in there:
        if tags.tags_in(said).get(tags.POOL) not in known:
            if await termination.remove(cloud, made):
                found.others.append(made.name)
            else:
                found.left.append(f"{made} ({region})")


async def _release_addresses(cloud: AWSClient, region: str, found: SweepReport) -> None:
    """Release this owner's Elastic IP addresses of pools that have no record. Raises `AWSError`."""
    only = [{"Name": f"tag:{tags.OWNER}", "Values": [rental_records.owner()]}]
    try:
        said = await cloud.ask("DescribeAddresses", region, Filters=only)
    except AWSError as fault:
        if fault.code not in DENIED:  # without the permission, there are none
            found.left.append(f"Elastic IP addresses in {region} ({spell_fault(fault)})")
        return
    known = rental_records.pool_ids()
    lost: dict[str, list[str]] = {}
    for each in said["Addresses"]:
        pool_id = tags.tags_in(each).get(tags.POOL, "")
        if pool_id not in known:
            lost.setdefault(pool_id, []).append(str(each.get("PublicIp", each["AllocationId"])))
    for pool_id, names in lost.items():
        if await elastic_addresses.release(cloud, region, pool_id):
            found.addresses += names
        else:
            found.left += [f"Elastic IP address {each} ({region})" for each in names]
