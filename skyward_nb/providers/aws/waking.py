"""Starts stopped machines for a pool that needs such ones; of several pools that want them, one gets them.

The first client that writes down its claim has them (`RentalFolder.claim`). From there on the record is that of a launch:
a client that is killed leaves machines that end by their own timers, or by a sweep. The timer of EventBridge goes on
until a login has given the machines the times of the new pool.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from skyward_nb.bootstrap.remote_shell import ShellGone
from skyward_nb.protocol.events import CostChanged, Remark, Step
from skyward_nb.providers.aws import boot, end_timers, rental_records, termination
from skyward_nb.providers.aws.api_errors import AWSError, spell_fault
from skyward_nb.providers.aws.aws_machine import Rental
from skyward_nb.providers.aws.client import Answer, AWSClient
from skyward_nb.providers.aws.offer_walk import run_limit
from skyward_nb.providers.aws.rental_records import (
    MakerProcess,
    RentalFolder,
    RunningInstance,
    Warmth,
)
from skyward_nb.providers.aws.stopping import RUNNING, STOPPED, WAKING, run_on, terms_script
from skyward_nb.providers.aws.user_data import BOOT, LEAST, lease_for
from skyward_nb.providers.folders import far_root
from skyward_nb.providers.provider_protocol import Tell
from skyward_nb.providers.ssh.ssh_line import HostLine
from skyward_nb.words.errors import LaunchError, StartError
from skyward_nb.words.offers import Bill, Offer, spell_dollars
from skyward_nb.words.provider_access import LEAST_WARM, AWSAccess
from skyward_nb.words.spec import PoolSpec

_MARGIN = LEAST_WARM / 2
"""Seconds before the end of stopped machines when they are no longer started."""
_STOPPING_LIMIT = 240.0
_START_LIMIT = 3600.0
"""Seconds for which the timer of machines is put off while they are started: longer than that takes."""
_PAUSE = 0.5
_MOST_PAUSE = 10.0
_ELSEWHERE = {"region": None, "regions": (), "zones": (), "warm": None}
"""Of the access, what says where machines may be, which their offers say, or nothing of them."""


@dataclass(frozen=True)
class WokenMachines:
    """Machines that run again, with the lines to them, and the record that has them."""

    entry: RentalFolder
    lines: list[HostLine]
    machines: tuple[RunningInstance, ...]


def needs_of(spec: PoolSpec) -> str:
    """A digest of all that machines of a pool are made from, apart from their place."""
    access = replace(spec.aws or AWSAccess(), **_ELSEWHERE)
    asked = spec.accelerator, spec.cpus, spec.memory, spec.mig, spec.volumes
    words = msgspec.json.encode((access, spec.nodes, *asked), order="deterministic")
    return hashlib.sha256(words).hexdigest()[:16]


async def woken(
    spec: PoolSpec,
    pool_id: str,
    cloud: AWSClient,
    account: str,
    offers: Sequence[Offer],
    tell: Tell,
) -> tuple[WokenMachines | None, float]:
    """Stopped machines that fit a pool, running; None if there are none, or none can be started.

    Also the most dollars that starts which failed have cost. Raises what waiting raises: then they are ended.
    """
    spent = 0.0
    for entry in rental_records.entries():
        offer = _fitting(spec, entry.record, account, offers, spent)
        if offer is None or not entry.claim(**_claimed(spec, pool_id)):
            continue
        claimed = entry.record.created
        try:
            try:
                return await _woken(spec, cloud, entry, offer, tell, spent), spent
            except _NotStartable as why:
                entry.note(state="stopped", used_by="")
                _say_refused(tell, str(why), "they are left alone")
            except (AWSError, StartError, ShellGone, TimeoutError, boot.EndedByEC2) as fault:
                spent += await _undone(spec, cloud, entry, offer, claimed, fault, tell)
        except LaunchError:  # they were ended, as far as that could be done
            raise
        except BaseException:
            await asyncio.shield(termination.end(cloud, entry))
            raise
    return None, spent


async def _undone(
    spec: PoolSpec,
    cloud: AWSClient,
    entry: RentalFolder,
    offer: Offer,
    claimed: float,
    fault: Exception,
    tell: Tell,
) -> float:
    """Leave machines stopped, or end them, after a start that failed; the most dollars that it has cost.

    Raises `LaunchError` if they may run all the same.
    """
    why = spell_fault(fault) if isinstance(fault, AWSError) else str(fault)
    was_asked = entry.record.created != claimed
    may_start = was_asked and isinstance(fault, AWSError) and fault.is_unknown
    is_left = not may_start and await _is_given_back(cloud, entry)
    may_run = "" if is_left else await _ended(cloud, entry)
    if may_run:
        tried = [("machines that were stopped", f"{why}: {may_run} may still run")]
        raise LaunchError(spec.name, tried, is_clean=False) from fault
    is_stopped = entry.record.state == "stopped"
    _say_refused(tell, why, "they stay stopped" if is_stopped else "they are ended")
    if not was_asked or is_stopped:
        return 0.0
    seconds = max(time.time() - entry.record.created, LEAST)
    return (offer.hourly(spec.nodes) or 0.0) * seconds / 3600


def _say_refused(tell: Tell, why: str, what: str) -> None:
    """Say why stopped machines could not be started, and what becomes of them."""
    tell(
        Remark(
            f"machines that were stopped could not be started ({why}): {what}, and others are rented"
        )
    )


def _fitting(
    spec: PoolSpec,
    record: rental_records.RentalRecord,
    account: str,
    offers: Sequence[Offer],
    spent: float,
) -> Offer | None:
    """The offer of machines like the stopped ones of a record, if they fit and will not end soon."""
    warmth = record.warmth
    if record.state != "stopped" or warmth is None or warmth.until is None:
        return None
    if spec.spot != "no":  # spot machines are cheaper
        return None
    is_like = warmth.needs == needs_of(spec) and record.account == account
    if not is_like or time.time() > warmth.until - _MARGIN:
        return None
    one = record.machines[0]
    for offer in offers:
        place = offer.type.name, offer.region, offer.spot
        left = None if spec.max_cost is None else spec.max_cost - spent
        lasts = left is None or (offer.lasts(left, spec.nodes) or 0) > WAKING
        in_zone = not offer.zones or one.zone in offer.zones
        if place == (one.type, one.region, False) and in_zone and lasts:
            return offer
    return None


def _claimed(spec: PoolSpec, pool_id: str) -> dict[str, object]:
    """The changes of a record whose machines a pool has from now on."""
    return {
        "state": "launching",
        "used_by": pool_id,
        "name": spec.name,
        "maker": MakerProcess.this(),
        "created": time.time(),
        "deadline": None,
        "listing": str((far_root() / f"{pool_id}.json").absolute()),
        "replaces": spec.on_preempt == "replace",
        "left_by": None,
    }


def _warmth_of(spec: PoolSpec, before: Warmth) -> Warmth | None:
    """How machines are stopped at the end of the pool that has them now; None: they are ended."""
    warm = None if spec.aws is None else spec.aws.warm
    return None if warm is None else replace(before, seconds=warm, until=None)


class _NotStartable(Exception):
    """Why machines cannot be started now: they are left alone."""


async def _is_given_back(cloud: AWSClient, entry: RentalFolder) -> bool:
    """Whether none was started, and they are left stopped."""
    record = entry.record
    names = [each.instance for each in record.machines]
    try:
        states = await termination.states_of(cloud, record.machines[0].region, record.pool_id)
        if {states.get(each) for each in names} == {"stopped"}:
            assert record.warmth is not None and record.warmth.until is not None
            await end_timers.switch_on(cloud, record, names, record.warmth.until)
            entry.note(state="stopped", used_by="")
            return True
    except AWSError:
        """They are ended."""
    return False


async def _ended(cloud: AWSClient, entry: RentalFolder) -> str:
    """End machines; those that may run all the same, in words. Others are not paid for beside them."""
    left = await termination.end(cloud, entry)
    return str(left) if left.machines else ""


async def _woken(
    spec: PoolSpec, cloud: AWSClient, entry: RentalFolder, offer: Offer, tell: Tell, spent: float
) -> WokenMachines:
    """Start the machines of a record, log in, and have them live by the new pool's times."""
    nodes, rate = tuple(range(spec.nodes)), offer.hourly(spec.nodes)
    one = entry.record.machines[0]
    price = "at a price that is not known" if rate is None else f"{spell_dollars(rate)} / h"
    what = f"{spec.nodes} × {one.type} in {one.zone}"
    tell(Step(nodes, "launch", f"starting {what}, stopped before, {price}"))
    warmth = entry.record.warmth
    assert warmth is not None and warmth.until is not None
    names = [each.instance for each in entry.record.machines]
    before = await _stopped(cloud, entry)
    # Its timer must not end them while they start.
    await end_timers.switch_on(cloud, entry.record, names, warmth.until + _START_LIMIT)
    rental = Rental(cloud, entry.record.user_pool)
    if await rental.let_in():
        entry.note(let_in=rental.callers)
    entry.note(created=time.time())
    await cloud.ask("StartInstances", one.region, InstanceIds=names)
    began = entry.record.created
    machines = await _running(cloud, entry, offer, before)
    lease = lease_for(spec, rate, spent)
    ends = began + lease.deadline + BOOT if lease.deadline else None
    entry.note(machines=machines, deadline=ends)
    source = "" if offer.price is None else offer.price.source
    bill = Bill(
        dollars=rate, began=began, what=what, source=source, before=spent, max_cost=spec.max_cost
    )
    tell(CostChanged(bill))
    tell(Step(nodes, "launch", f"{what}, stopped before", done=True))
    lines = await boot.log_in_again(cloud, entry, machines, tell)
    try:
        # From here on they count, while machines have cost since their start.
        left = lease.deadline and max(LEAST, lease.deadline - (time.time() - began))
        script = terms_script(lease.boot, lease.idle, left)
        await asyncio.gather(*(run_on(line, script) for line in lines))
        await end_timers.switch_off(cloud, entry.record)
        entry.note(warmth=_warmth_of(spec, warmth))
    except BaseException:
        await asyncio.gather(*(line.close() for line in lines))
        raise
    return WokenMachines(entry, lines, machines)


async def _stopped(cloud: AWSClient, entry: RentalFolder) -> dict[str, str]:
    """Wait until the machines have stopped; why each has. Raises `AWSError`, and `_NotStartable`."""
    region = entry.record.machines[0].region
    until, pause = time.monotonic() + _STOPPING_LIMIT, _PAUSE
    while True:
        told = await termination.asked(cloud, region, entry.record.pool_id)
        # Where the home was copied, another computer may have started them by a record of its own.
        if runs := [str(each["InstanceId"]) for each in told if _state(each) in RUNNING]:
            raise _NotStartable(f"{', '.join(runs)} run already, started by somebody else")
        going = [str(each["InstanceId"]) for each in told if _state(each) == "stopping"]
        if not going:
            return {str(each["InstanceId"]): str(each.get("StateReason")) for each in told}
        if time.monotonic() > until:
            raise _NotStartable(f"{', '.join(going)} are still stopping")
        await asyncio.sleep(pause)
        pause = min(2 * pause, _MOST_PAUSE)


def _state(said: Answer) -> str:
    return str(said.get("State", {}).get("Name", ""))


async def _running(
    cloud: AWSClient, entry: RentalFolder, offer: Offer, before: dict[str, str]
) -> tuple[RunningInstance, ...]:
    """The machines with their new addresses, once all run; `before` says why they were stopped. Raises `AWSError`."""
    record, pause = entry.record, _PAUSE
    limit = run_limit(offer.type.name)
    until = time.monotonic() + limit
    begun: set[str] = set()
    price = None if offer.price is None else offer.price.dollars
    while True:
        told = {
            str(each["InstanceId"]): each
            for each in await termination.asked(cloud, offer.region, record.pool_id)
        }
        now: list[RunningInstance] = []
        for each in record.machines:
            said = told.get(each.instance, {})
            state, reason = _state(said), said.get("StateReason", {})
            # A start that fails leads back to "stopped", which is also what EC2 may say before it has begun.
            is_new = each.instance in begun or (reason and str(reason) != before.get(each.instance))
            if state in ("shutting-down", "terminated") or (state in STOPPED and is_new):
                code = str(reason.get("Code", "Ended")).rpartition(".")[2]
                why = f"{each.instance} is {state}: {reason.get('Message', 'no reason is given')}"
                raise AWSError(code, why, "StartInstances")
            if state in RUNNING:
                begun.add(each.instance)
            public = said.get("PublicIpAddress") or None
            if state == "running" and (public or each.public is None):
                own = None if each.public is None else public
                private = str(said["PrivateIpAddress"])
                now.append(replace(each, public=own, private=private, price=price))
        if len(now) == len(record.machines):
            return tuple(now)
        if time.monotonic() > until:
            why = f"{len(now)} of {len(record.machines)} machines run after {limit:g} s"
            raise AWSError("UnfulfillableCapacity", why, "StartInstances")
        await asyncio.sleep(pause)
        pause = min(2 * pause, _MOST_PAUSE)
