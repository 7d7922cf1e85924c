"""Starts stopped machines for a pool that needs such ones; of several pools that want them, one gets them.

Who has written down that it has them, has them (`RentalFolder.claim`). From there on the record is that of a launch:
whoever is killed leaves machines that end by their own timers, and that sweeps end. The timer of EventBridge goes on
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
from skyward_nb.providers.aws.client import AWSClient
from skyward_nb.providers.aws.machine import Rental
from skyward_nb.providers.aws.rental_records import MakerProcess, RentalFolder, RunningInstance
from skyward_nb.providers.aws.stopping import WAKING, run_on, terms_script
from skyward_nb.providers.aws.user_data import BOOT, lease_for
from skyward_nb.providers.base import Tell
from skyward_nb.providers.folders import far_root
from skyward_nb.providers.ssh.line import HostLine
from skyward_nb.words.aws_access import LEAST_WARM, AWSAccess
from skyward_nb.words.errors import StartError
from skyward_nb.words.offers import Bill, Offer, spell_dollars
from skyward_nb.words.spec import PoolSpec

_MARGIN = LEAST_WARM / 2
"""Seconds before the end of stopped machines when they are no longer started."""
_STOPPING_LIMIT = 300.0
_RUN_LIMIT = 300.0
_PAUSE = 0.5
_MOST_PAUSE = 10.0
_ELSEWHERE = {"region": None, "regions": (), "zones": (), "instance_type": None, "warm": None}
"""Of the access, what says where machines may be, which their offers say, or nothing of them."""


@dataclass(frozen=True)
class WokenMachines:
    """Machines that run again, with the lines to them, and the record that has them."""

    entry: RentalFolder
    lines: list[HostLine]
    machines: tuple[RunningInstance, ...]


def needs_of(spec: PoolSpec) -> str:
    """A digest of all that machines of a pool are made from, apart from their type and place."""
    access = replace(spec.aws or AWSAccess(), **_ELSEWHERE)
    words = msgspec.json.encode((access, spec.nodes, spec.mig), order="deterministic")
    return hashlib.sha256(words).hexdigest()[:16]


async def woken(
    spec: PoolSpec,
    pool_id: str,
    cloud: AWSClient,
    account: str,
    offers: Sequence[Offer],
    tell: Tell,
) -> WokenMachines | None:
    """Stopped machines that fit a pool, running; None if there are none, or none can be started.

    Raises what waiting raises: then they are ended.
    """
    for entry in rental_records.entries():
        offer = _fitting(spec, entry.record, account, offers)
        if offer is None or not entry.claim(**_claimed(spec, pool_id)):
            continue
        try:
            return await _woken(spec, cloud, entry, offer, tell)
        except (AWSError, StartError, ShellGone, TimeoutError, boot.EndedByEC2) as fault:
            why = spell_fault(fault) if isinstance(fault, AWSError) else str(fault)
            what = await _given_back(cloud, entry)
            tell(Remark(f"machines that were stopped could not be started ({why}): {what}"))
        except BaseException:
            await asyncio.shield(termination.end(cloud, entry))
            raise
    return None


def _fitting(
    spec: PoolSpec, record: rental_records.RentalRecord, account: str, offers: Sequence[Offer]
) -> Offer | None:
    """The offer of machines like the stopped ones of a record, if they fit and will not end soon."""
    warmth = record.warmth
    if record.state != "stopped" or warmth is None or warmth.until is None:
        return None
    is_like = warmth.needs == needs_of(spec) and record.account == account
    if not is_like or time.time() > warmth.until - _MARGIN:
        return None
    one = record.machines[0]
    for offer in offers:
        place = offer.type.name, offer.region, offer.spot
        lasts = spec.max_cost is None or (offer.lasts(spec.max_cost, spec.nodes) or 0) > WAKING
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
    }


async def _given_back(cloud: AWSClient, entry: RentalFolder) -> str:
    """Leave machines stopped if none was started, else end them; what became of them, and what is done now."""
    record = entry.record
    try:
        states = await termination.states_of(cloud, record.machines[0].region, record.pool_id)
    except AWSError:
        states = {}
    if {states.get(each.instance) for each in record.machines} == {"stopped"}:
        entry.note(state="stopped", used_by="")
        return "they stay stopped, and others are rented"
    left = await termination.end(cloud, entry)
    return f"{left} may still run" if left.machines else "they are ended, and others are rented"


async def _woken(
    spec: PoolSpec, cloud: AWSClient, entry: RentalFolder, offer: Offer, tell: Tell
) -> WokenMachines:
    """Start the machines of a record, log in, and have them live by the new pool's times."""
    nodes, rate = tuple(range(spec.nodes)), offer.hourly(spec.nodes)
    one = entry.record.machines[0]
    price = "at a price that is not known" if rate is None else f"{spell_dollars(rate)} / h"
    what = f"{spec.nodes} × {one.type} in {one.zone}"
    tell(Step(nodes, "launch", f"starting {what}, stopped before, {price}"))
    rental = Rental(cloud, entry.record.user_pool)
    await rental.let_in()
    began = time.time()
    await _start(cloud, entry)
    machines = await _running(cloud, entry, offer)
    lease = lease_for(spec, rate)
    ends = began + lease.deadline + BOOT if lease.deadline else None
    entry.note(machines=machines, deadline=ends)
    source = "" if offer.price is None else offer.price.source
    bill = Bill(dollars=rate, began=began, what=what, source=source, max_cost=spec.max_cost)
    tell(CostChanged(bill))
    tell(Step(nodes, "launch", f"{what}, stopped before", done=True))
    lines = await boot.log_in_again(cloud, entry, machines, tell)
    try:
        script = terms_script(lease.boot, lease.idle, lease.deadline)
        await asyncio.gather(*(run_on(line, script) for line in lines))
        await end_timers.switch_off(cloud, entry.record)
    except BaseException:
        await asyncio.gather(*(line.close() for line in lines))
        raise
    return WokenMachines(entry, lines, machines)


async def _start(cloud: AWSClient, entry: RentalFolder) -> None:
    """Ask EC2 to start the machines, once they have stopped; raises `AWSError`."""
    region, names = entry.record.machines[0].region, [m.instance for m in entry.record.machines]
    until, pause = time.monotonic() + _STOPPING_LIMIT, _PAUSE
    while True:
        states = await termination.states_of(cloud, region, entry.record.pool_id)
        if "stopping" not in states.values() or time.monotonic() > until:
            await cloud.ask("StartInstances", region, InstanceIds=names)
            return
        await asyncio.sleep(pause)
        pause = min(2 * pause, _MOST_PAUSE)


async def _running(
    cloud: AWSClient, entry: RentalFolder, offer: Offer
) -> tuple[RunningInstance, ...]:
    """The machines with their new addresses, once all run; raises `AWSError`."""
    record, until, pause = entry.record, time.monotonic() + _RUN_LIMIT, _PAUSE
    price = None if offer.price is None else offer.price.dollars
    while True:
        told = {
            str(each["InstanceId"]): each
            for each in await termination.asked(cloud, offer.region, record.pool_id)
        }
        now: list[RunningInstance] = []
        for each in record.machines:
            said = told.get(each.instance, {})
            state = str(said.get("State", {}).get("Name", ""))
            if state in ("shutting-down", "terminated"):
                reason = said.get("StateReason", {})
                code = str(reason.get("Code", "Ended")).rpartition(".")[2]
                why = f"{each.instance} ended: {reason.get('Message', 'nobody says why')}"
                raise AWSError(code, why, "StartInstances")
            public = said.get("PublicIpAddress") or None
            if state == "running" and (public or each.public is None):
                own = None if each.public is None else public
                private = str(said["PrivateIpAddress"])
                now.append(replace(each, public=own, private=private, price=price))
        if len(now) == len(record.machines):
            return tuple(now)
        if time.monotonic() > until:
            why = f"{len(now)} of {len(record.machines)} machines run after {_RUN_LIMIT:g} s"
            raise AWSError("UnfulfillableCapacity", why, "StartInstances")
        await asyncio.sleep(pause)
        pause = min(2 * pause, _MOST_PAUSE)
