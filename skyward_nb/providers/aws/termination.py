"""Ends all resources of a pool at AWS: machines first, until AWS says that they end.

Every process that has the pool's record may do this, any number of times.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from skyward_nb.providers.aws import elastic_addresses, end_timers
from skyward_nb.providers.aws.api_errors import AWSError, spell_fault
from skyward_nb.providers.aws.client import Answer, AWSClient
from skyward_nb.providers.aws.image_records import ImageRecord
from skyward_nb.providers.aws.network import find_group
from skyward_nb.providers.aws.rental_records import (
    CreatedResource,
    LaunchAttempt,
    RentalFolder,
    RentalRecord,
    as_far_as_it_can,
)
from skyward_nb.providers.aws.tags import of_pool

_SEEN_LATE = 120.0
"""Seconds within which EC2 may not yet list a new machine."""
UNSEEN = 3600.0
"""Seconds for which EC2 still lists machines that have ended."""
_LOOKS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between checks whether machines end."""
_PAUSE = 1.0
_MOST_PAUSE = 8.0
_UNTIL_OVER = ("address", "timer")
_ENDING = ("shutting-down", "terminated")
_ALIVE = ("pending", "running", "stopping", "stopped")


@dataclass(frozen=True)
class Leftovers:
    """Resources that are not known to be gone, in words; `machines` cost money."""

    machines: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    why: str = ""

    def __bool__(self) -> bool:
        return bool(self.machines or self.others)

    def __str__(self) -> str:
        parts = [*self.machines, *self.others]
        return f"{', '.join(parts)}{': ' * bool(self.why)}{self.why}"


async def end(
    cloud: AWSClient,
    entry: RentalFolder,
    told: Callable[[str], None] = lambda _: None,
    *,
    wait: float = 0.0,
) -> Leftovers:
    """End all resources of a pool, and forget its record when nothing is left.

    Groups can only be removed after their machines: this waits `wait` seconds, and a later call removes the
    rest. Leftovers include all that AWS refuses to end, and everything if the pool was rented in another
    account than that of these credentials.
    """
    why = ""
    try:
        if others := await other_account(cloud, entry.record):
            return _unseen(entry.record, others)
    except AWSError as fault:
        why = spell_fault(fault)
    try:
        return await _end(cloud, entry, told, wait, why)
    except FileNotFoundError:
        if entry.is_there:
            raise
        return Leftovers()  # another process has ended it and removed its record


async def other_account(cloud: AWSClient, record: RentalRecord | ImageRecord) -> str:
    """The account of these credentials if it is not that of the record; else "". Raises `AWSError`."""
    if not record.account or not record.regions:
        return ""
    account = await cloud.account(record.regions[0])
    return "" if account == record.account else account


def _unseen(record: RentalRecord, account: str) -> Leftovers:
    """All that a record names, as these credentials are of another account."""
    machines = [name for region in record.regions for name in _known(record, region)]
    others = tuple(f"{each} ({each.region})" for each in record.made)
    profile = f", with aws_profile={record.profile}" if record.profile else ""
    why = (
        f"the credentials here belong to account {account}, and it was rented in account {record.account}"
        f"{profile}: `%sky sweep` with credentials of that account ends it"
    )
    return Leftovers(tuple(machines) or (f"machines in account {record.account}",), others, why)


async def _end(
    cloud: AWSClient, entry: RentalFolder, told: Callable[[str], None], wait: float, unsure: str
) -> Leftovers:
    """End it; `unsure` is why the account of these credentials is unknown: then the record stays."""
    if entry.record.state != "ending":
        with as_far_as_it_can():
            entry.note(state="ending")
    until = time.monotonic() + wait
    machines: list[str] = []
    others: list[str] = []
    whys: list[str] = []
    for region in entry.record.regions:
        try:
            told(f"ending the machines of {region}")
            alive = await end_machines(cloud, entry, region)
            machines += alive
            # Those of an attempt without an answer have no address, if there are any.
            is_over = not any(each.startswith("i-") for each in alive)
            others += await _end_others(cloud, entry, region, until, told, is_over=is_over)
        except AWSError as fault:
            made = [str(each) for each in entry.record.made if each.region == region]
            tokens = [each.token for each in _unended(entry.record, region)]
            alive = tokens or _known(entry.record, region)
            machines += alive or (
                [] if _is_over(entry.record, region) else [f"machines in {region}"]
            )
            others += made
            whys.append(spell_fault(fault))
    if unsure and not (machines or others):
        others.append(f"the record of {entry.record.pool_id}")
        whys.append(unsure)
    left = Leftovers(tuple(machines), tuple(others), "; ".join(dict.fromkeys(whys)))
    if not left:
        entry.forget()
    return left


async def end_machines(
    cloud: AWSClient, entry: RentalFolder, region: str, *, since: int = 0
) -> list[str]:
    """End a pool's machines in a region; returns those that may still run. Raises `AWSError`.

    All others are shutting down, or gone, when it returns. With `since`, only the machines of attempts from
    this number on are ended.
    """
    record = replace(entry.record, attempts=entry.record.attempts[since:])
    attempts = [each for each in record.attempts if each.region == region]
    tokens = {each.token for each in record.attempts}
    lacking = set(_known(record, region))
    alive: list[str] = []
    seen: dict[str, str] = {}
    for pause in (*_LOOKS, 0.0):
        told = await asked(cloud, region, record.pool_id)
        if since:
            told = [each for each in told if each.get("ClientToken") in tokens]
        found = _states(told)
        seen |= {str(each["InstanceId"]): str(each.get("ClientToken")) for each in told}
        lacking -= found.keys()
        if alive := [name for name, state in found.items() if state not in _ENDING]:
            await cloud.ask("TerminateInstances", region, InstanceIds=alive)
        elif not lacking or not any(map(_is_late, attempts)):
            break
        await asyncio.sleep(pause)
    else:
        return [*alive, *lacking]
    counts = Counter(seen.values())
    late = [each.token for each in _unended(record, region) if counts[each.token] < each.count]
    for each in attempts:
        if each.token not in late:
            with as_far_as_it_can():
                entry.attempt(replace(each, over=True))
    return [f"machines of attempt {each} in {region}, if it made any" for each in late]


async def end_some(
    cloud: AWSClient, entry: RentalFolder, region: str, names: Collection[str]
) -> list[str]:
    """End these machines of a pool and no others; returns those that do not end yet. Raises `AWSError`.

    The others are removed from the record.
    """
    alive: list[str] = []
    for pause in (*_LOOKS, 0.0):
        states = await states_of(cloud, region, entry.record.pool_id)
        if not (alive := [name for name in names if is_alive(states.get(name, ""))]):
            break
        await cloud.ask("TerminateInstances", region, InstanceIds=alive)
        await asyncio.sleep(pause)
    for attempt in entry.record.attempts:
        left = tuple(each for each in attempt.instances if each not in names or each in alive)
        if left != attempt.instances:
            with as_far_as_it_can():
                entry.attempt(replace(attempt, instances=left, over=attempt.over or not left))
    return alive


@dataclass(frozen=True)
class MachineEnd:
    """Why a machine ended, in words, and EC2's `code` of it: `Server.…` of EC2, `Client.…` of anybody else."""

    why: str
    code: str

    @property
    def is_by_ec2(self) -> bool:
        """Whether EC2 took the machine back, or could not run it on."""
        return self.code.startswith("Server.")


async def ends_of(cloud: AWSClient, region: str, pool_id: str) -> dict[str, MachineEnd]:
    """The machines of a pool that have ended or are ending, and why; raises `AWSError`."""
    return ends_in(await asked(cloud, region, pool_id))


def ends_in(told: Iterable[Answer]) -> dict[str, MachineEnd]:
    """Of these machines, as EC2 describes them, those that have ended or are ending, and why."""
    return {
        str(each["InstanceId"]): MachineEnd(
            _why_ended(each), str(each.get("StateReason", {}).get("Code", ""))
        )
        for each in told
        if not is_alive(str(each["State"]["Name"]))
    }


async def unlisted(
    cloud: AWSClient, region: str, record: RentalRecord, told: Iterable[Answer]
) -> list[str]:
    """Machines of a pool that EC2 lists no more, as it does an hour after their end; raises `AWSError`.

    `told` are those that it has listed there just now.
    """
    begun = {name: each.at for each in record.attempts for name in each.instances}
    old = [
        each.instance
        for each in record.machines
        if each.region == region
        and time.time() - (begun.get(each.instance) or record.created) > UNSEEN
    ]
    listed = _states(told)
    gone = [each for each in old if each not in listed]
    if not gone or not record.account:
        return []
    # With credentials of another account none is listed.
    return [] if await other_account(cloud, record) else gone


def _why_ended(instance: Answer) -> str:
    said = instance.get("StateReason", {}).get("Message") or instance.get("StateTransitionReason")
    state = str(instance["State"]["Name"])
    return f"EC2 says that it is {state}{f': {said}' if said else ''}"


async def states_of(cloud: AWSClient, region: str, pool_id: str) -> dict[str, str]:
    """The machines of a pool that EC2 lists, and their states; raises `AWSError`."""
    return _states(await asked(cloud, region, pool_id))


async def asked(cloud: AWSClient, region: str, pool_id: str) -> list[Answer]:
    """The machines of a pool as EC2 describes them; raises `AWSError`."""
    said = await cloud.ask_all("DescribeInstances", region, Filters=[of_pool(pool_id)])
    return list(instances_in(said))


def _states(told: Iterable[Answer]) -> dict[str, str]:
    return {str(each["InstanceId"]): str(each["State"]["Name"]) for each in told}


def instances_in(said: Answer) -> Iterable[Answer]:
    """The instances of an answer."""
    for reservation in said.get("Reservations", []):
        yield from reservation.get("Instances", [])


def is_alive(state: str) -> bool:
    """Whether a machine in this state costs money, or will."""
    return state in _ALIVE


def _known(record: RentalRecord, region: str) -> list[str]:
    """The machines that are known to be launched there."""
    attempts = [each for each in record.attempts if each.region == region and not each.over]
    return [name for each in attempts for name in each.instances]


def _unended(record: RentalRecord, region: str) -> list[LaunchAttempt]:
    """Attempts without an answer that are so recent that their machines may still appear."""
    return [
        each
        for each in record.attempts
        if each.region == region and not each.over and not each.instances and _is_late(each)
    ]


def _is_late(attempt: LaunchAttempt) -> bool:
    # If the clock was set back, it counts as recent for longer, which is harmless.
    return time.time() - max(attempt.at, attempt.repeated) < _SEEN_LATE


def _is_over(record: RentalRecord, region: str) -> bool:
    return all(each.over for each in record.attempts if each.region == region)


# ── groups ──────────────────────────────────────────────────────────────────────────────


async def _end_others(
    cloud: AWSClient,
    entry: RentalFolder,
    region: str,
    until: float,
    told: Callable[[str], None],
    *,
    is_over: bool,
) -> list[str]:
    """Remove a pool's groups in a region; returns those that are still in use. Raises `AWSError`.

    Its addresses and timers stay until its machines are `over`: these may have to be reached, to power off, or be ended by
    their timers.
    """
    pause = _PAUSE
    while True:
        left: list[CreatedResource] = []
        refused: AWSError | None = None
        for made in [each for each in entry.record.made if each.region == region]:
            try:
                may_go = is_over or made.kind not in _UNTIL_OVER
                gone = may_go and await remove(cloud, made)
            except AWSError as fault:
                refused = refused or fault  # the others are removed all the same
                continue
            if gone:
                with as_far_as_it_can():
                    entry.gone(made)
            else:
                left.append(made)
        if not left or time.monotonic() + pause > until:
            if refused is not None:
                raise refused
            return [f"{each} ({region})" for each in left]
        told("waiting until the machines have ended, to remove their security group")
        await asyncio.sleep(pause)
        pause = min(2 * pause, _MOST_PAUSE)


async def remove(cloud: AWSClient, made: CreatedResource) -> bool:
    """Remove a group, or a pool's addresses; False while something uses it. Raises `AWSError`."""
    if made.kind == "address":
        return await elastic_addresses.release(cloud, made.region, made.name)
    try:
        if made.kind == "timer":
            await end_timers.remove(cloud, made)
        elif made.kind == "placement":
            await cloud.ask("DeletePlacementGroup", made.region, GroupName=made.name)
        elif (group := await find_group(cloud, made.region, made.name)) is not None:
            await cloud.ask("DeleteSecurityGroup", made.region, GroupId=group)
    except AWSError as fault:
        if fault.code in (
            "DependencyViolation",
            "InvalidPlacementGroup.InUse",
            "InvalidGroup.InUse",
        ):
            return False
        if fault.code not in ("InvalidGroup.NotFound", "InvalidPlacementGroup.Unknown"):
            raise
    return True
