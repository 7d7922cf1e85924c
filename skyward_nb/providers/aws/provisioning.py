"""Rents the machines of a pool for a spec, and finds those of an existing pool."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from skyward_nb.protocol.events import CostChanged, Phase, Remark
from skyward_nb.providers.aws import boot, key_pairs, rental_records, termination
from skyward_nb.providers.aws.api_errors import AWSError, spell_fault
from skyward_nb.providers.aws.aws_machine import AWSMachine, Rental, machines_of, power_off
from skyward_nb.providers.aws.client import AWSClient
from skyward_nb.providers.aws.launch import Launch
from skyward_nb.providers.aws.launch_request import LaunchRequest
from skyward_nb.providers.aws.offer_walk import ZoneAttempt, without
from skyward_nb.providers.aws.rental_records import (
    MakerProcess,
    RentalFolder,
    RentalRecord,
    RunningInstance,
    Warmth,
)
from skyward_nb.providers.aws.sweep import SweepReport, sweep
from skyward_nb.providers.aws.user_data import SHORTEST
from skyward_nb.providers.aws.waking import needs_of, woken
from skyward_nb.providers.far.host_setup import made_ready
from skyward_nb.providers.far.take_down import BESIDE
from skyward_nb.providers.folders import far_root
from skyward_nb.providers.provider_protocol import AgentGone, Tell
from skyward_nb.providers.ssh.private_keys import new_pair
from skyward_nb.providers.ssh.ssh_line import HostLine
from skyward_nb.words.errors import AccountError, LaunchError, NothingFits
from skyward_nb.words.offers import Bill, Offer
from skyward_nb.words.spec import PoolSpec


async def rent(
    spec: PoolSpec, pool_id: str, offers: Sequence[Offer], tell: Tell
) -> tuple[AWSMachine, ...]:
    """The machines of a new pool, head first, or none: after a failure, all are ended again.

    Raises `LaunchError`, `NothingFits`, `StartError`, `AccountError`.
    """
    assert spec.aws is not None
    offers = affordable(spec, offers)
    cloud = AWSClient.of(spec.aws)
    sweeping = asyncio.create_task(sweep())
    _sweeping.add(sweeping)
    sweeping.add_done_callback(_has_swept)
    entry: RentalFolder | None = None
    try:
        account = await _account(cloud, offers[0].region)
        found, spent = await woken(spec, pool_id, cloud, account, offers, tell)
        if found is not None:
            entry = found.entry
            machines = await _readied(spec, cloud, entry, found.lines, found.machines, tell)
        else:
            entry = RentalFolder.begin(_record(spec, pool_id, account))
            machines = await _rented(spec, cloud, entry, offers, tell, spent)
        await asyncio.wait([sweeping], timeout=BESIDE)
        entry.note(state="up")
    except BaseException:
        sweeping.cancel()
        if entry is not None:
            await asyncio.shield(_undone(cloud, entry, tell))
        # After that: its call of AWS may take minutes, in which new machines cost money.
        await asyncio.wait([sweeping], timeout=BESIDE)
        raise
    finally:
        _tell_found(sweeping, tell)
    return machines


def _record(spec: PoolSpec, pool_id: str, account: str) -> RentalRecord:
    """The record of a new pool."""
    assert spec.aws is not None
    warm = spec.aws.warm
    return RentalRecord(
        pool_id=pool_id,
        name=spec.name,
        owner=rental_records.owner(),
        maker=MakerProcess.this(),
        created=time.time(),
        account=account,
        profile=spec.aws.profile,
        endpoint=spec.aws.endpoint,
        tags=spec.aws.tags,
        jump=spec.aws.jump or "",
        callers=spec.aws.caller,
        listing=str((far_root() / f"{pool_id}.json").absolute()),
        warmth=None if warm is None else Warmth(seconds=warm, needs=needs_of(spec)),
        replaces=spec.on_preempt == "replace",
    )


async def _rented(
    spec: PoolSpec,
    cloud: AWSClient,
    entry: RentalFolder,
    offers: Sequence[Offer],
    tell: Tell,
    spent: float,
) -> tuple[AWSMachine, ...]:
    """New machines, ready for agents, after `spent` dollars for a start that failed."""
    pair, host = new_pair("skyward_nb"), new_pair("")
    key_pairs.keep(entry.folder, pair)
    launch = Launch(LaunchRequest(spec, cloud, entry, pair, host), tell, spent)
    lines, launched = await _reached(spec, cloud, entry, launch, offers, tell)
    entry.note(machines=launched)
    return await _readied(spec, cloud, entry, lines, launched, tell)


async def _readied(
    spec: PoolSpec,
    cloud: AWSClient,
    entry: RentalFolder,
    lines: list[HostLine],
    machines: tuple[RunningInstance, ...],
    tell: Tell,
) -> tuple[AWSMachine, ...]:
    """Machines that can be logged in to, made ready for agents."""
    pool_id, spot = entry.record.user_pool, machines[0].spot
    rental = Rental(cloud, pool_id)
    async with boot.kept(entry, machines):
        readied = await made_ready(spec, lines, tell)
    return machines_of(spec.name, pool_id, rental, readied, spot=spot)


async def _reached(
    spec: PoolSpec,
    cloud: AWSClient,
    entry: RentalFolder,
    launch: Launch,
    offers: Sequence[Offer],
    tell: Tell,
) -> tuple[list[HostLine], tuple[RunningInstance, ...]]:
    """Machines that can be logged in to; those that EC2 takes back before that lead to the next offer."""
    try:
        while True:
            launched = await launch.run(offers)
            entry.note(machines=launched, user=launch.request.user)
            assert launch.chosen is not None
            before = launch.cost(entry.record.attempts[-1].at)
            tell(CostChanged(_bill(spec, entry, launch.chosen, before)))
            try:
                return await boot.log_in(cloud, entry, launched, tell)
            except boot.EndedByEC2 as taken:
                offers = await _next_offers(cloud, entry, launch, offers, str(taken), tell)
    except BaseException:
        if cost := launch.cost(time.time()):
            tell(CostChanged(_bill_of_nothing(spec, entry, cost)))
        raise


async def _next_offers(
    cloud: AWSClient,
    entry: RentalFolder,
    launch: Launch,
    offers: Sequence[Offer],
    why: str,
    tell: Tell,
) -> tuple[Offer, ...]:
    """The offers after one whose machines were taken back, once these have ended; raises `LaunchError`."""
    assert launch.chosen is not None
    tried, name = launch.chosen, entry.record.name
    said = f"EC2 took machines back before their first login ({why})"
    try:
        left = await termination.end_machines(cloud, entry, tried.offer.region, since=0)
    except AWSError as fault:
        raise LaunchError(name, [(str(tried), said)], spell_fault(fault), is_clean=False) from fault
    if left:
        more = f"{', '.join(left)} may still run."
        raise LaunchError(name, [(str(tried), said)], more, is_clean=False)
    launch.gave_up()
    after = without(offers, tried)
    if not after:
        raise LaunchError(
            name, [(str(tried), said)], "Other ways: spot=auto, more zones=, or on demand."
        )
    tell(Remark(f"{tried}: {said}; the next offer is tried"))
    return after


def affordable(spec: PoolSpec, offers: Sequence[Offer]) -> Sequence[Offer]:
    """The offers that keep within the budget; raises `NothingFits` if there are none."""
    if spec.max_cost is None:
        return offers
    seconds = [(offer, offer.lasts(spec.max_cost, spec.nodes)) for offer in offers]
    known = [(offer, lasts) for offer, lasts in seconds if lasts is not None]
    if not known:
        why = "no price is known, so max_cost= cannot be enforced: ttl= ends a pool after a time"
        raise NothingFits(why)
    lasting = [offer for offer, lasts in known if lasts >= SHORTEST]
    if not lasting:
        best, most = max(known, key=lambda each: each[1])
        machines = f"{spec.nodes} × {best.type.name}"
        why = (
            f"max_cost={spec.max_cost:g} is spent in {most:.0f} s by {machines}, the cheapest: too short to "
            f"be of use. Raise max_cost={', or ask for fewer nodes=' * (spec.nodes > 1)}"
        )
        raise NothingFits(why, nearest=(best.type.name,))
    return lasting


def _bill(spec: PoolSpec, entry: RentalFolder, chosen: ZoneAttempt, before: float) -> Bill:
    """The bill of machines since their launch; `before` is the cost of failed ones."""
    price = chosen.offer.price
    return Bill(
        dollars=chosen.offer.hourly(spec.nodes),
        began=entry.record.attempts[-1].at,
        what=f"{spec.nodes} × {chosen}",
        source="" if price is None else price.source,
        before=before,
        max_cost=spec.max_cost,
    )


def _bill_of_nothing(spec: PoolSpec, entry: RentalFolder, cost: float) -> Bill:
    """The bill of machines that ended before all of them ran."""
    return Bill(
        dollars=0.0,
        began=time.time(),
        first=next((each.at for each in entry.record.attempts), entry.record.created),
        what="machines that ended before all ran",
        before=cost,
        max_cost=spec.max_cost,
    )


def find(spec: PoolSpec, pool_id: str) -> tuple[AWSMachine, ...]:
    """The machines of a pool that is up, by its record; raises `AgentGone` without one."""
    entry = rental_records.find(pool_id)
    if entry is None or entry.record.state != "up":
        raise AgentGone
    record = entry.record
    rental = Rental(AWSClient(record.profile, record.endpoint), pool_id)
    return machines_of(spec.name, pool_id, rental, [(line, None) for line in boot.lines_to(entry)])


async def _account(cloud: AWSClient, region: str) -> str:
    """The account of these credentials; raises `AccountError` if they are not valid."""
    try:
        return await cloud.account(region)
    except AWSError as fault:
        raise AccountError(spell_fault(fault)) from fault


async def _undone(cloud: AWSClient, entry: RentalFolder, tell: Tell) -> None:
    """End all that was begun; the record keeps the rest for the next sweep."""
    launched = [name for each in entry.record.attempts for name in each.instances]
    left = await termination.end(cloud, entry, lambda text: tell(Phase(text)))
    tell(Phase(""))
    if launched and not left.machines:
        count = f"{len(launched)} machine{'s' * (len(launched) != 1)}"
        tell(Remark(f"{count} that had started were ended ({', '.join(launched)})"))
    if left.machines:
        lines = boot.lines_to(entry)
        await power_off(lines)
        await asyncio.gather(*(line.close() for line in lines))
        tell(Remark(f"{left}; they end by themselves, and `%sky sweep` checks again"))


_sweeping: set[asyncio.Task[SweepReport]] = set()
"""Searches for earlier leftovers, during the launch; one that takes long goes on after it."""


def _has_swept(sweeping: asyncio.Task[SweepReport]) -> None:
    _sweeping.discard(sweeping)
    if not sweeping.cancelled():
        sweeping.exception()  # nobody may be left to whom it would be told


def _tell_found(sweeping: asyncio.Task[SweepReport], tell: Tell) -> None:
    """Tell what a search for earlier leftovers has ended or left; one that fails does not end the new machines."""
    if sweeping.cancelling():
        return
    if not sweeping.done():
        tell(Remark("the search for earlier leftovers goes on"))
    elif (error := sweeping.exception()) is not None:
        tell(Remark(f"the search for earlier leftovers failed: {error!r}"))
    elif (found := sweeping.result()) or found.left:
        tell(Remark(str(found)))
