"""Replaces machines that EC2 reclaimed: new ones are rented, readied, and then taken into the pool.

Until then, the pool's record has the old ones. If this process is killed meanwhile, sweeps find the new
machines by the tokens of their attempts.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from skyward_nb.protocol.events import CostChanged, Phase, Remark, Step
from skyward_nb.providers.aws import boot, key_pairs, quoting, rental_records, termination
from skyward_nb.providers.aws.api_errors import AWSError, spell_fault
from skyward_nb.providers.aws.aws_machine import AWSMachine, machines_of
from skyward_nb.providers.aws.client import AWSClient
from skyward_nb.providers.aws.elastic_addresses import release_spare
from skyward_nb.providers.aws.launch import Launch
from skyward_nb.providers.aws.launch_request import LaunchRequest
from skyward_nb.providers.aws.rental_records import RentalFolder, RentalRecord, RunningInstance
from skyward_nb.providers.aws.substitutes import bill_of, lasting, offers_alike, share_of
from skyward_nb.providers.aws.user_data import BOOT, SHORTEST
from skyward_nb.providers.far.host_setup import made_ready
from skyward_nb.providers.maker_process import MakerProcess
from skyward_nb.providers.provider_protocol import (
    AgentGone,
    Machine,
    Readied,
    ReplacementRequest,
    Tell,
    Told,
)
from skyward_nb.providers.ssh.private_keys import new_pair
from skyward_nb.words.errors import LaunchError, PoolError, StartError
from skyward_nb.words.node_log_entry import NodeLogEntry
from skyward_nb.words.offers import Bill, Offer
from skyward_nb.words.spec import PoolSpec

_ENDED = "its record is gone: another process has ended it"


async def replaced(
    spec: PoolSpec, pool_id: str, lack: ReplacementRequest, readied: Readied, tell: Tell
) -> tuple[AWSMachine, ...]:
    """Machines in place of the lost ones, all or none; see `provider_protocol.Replaces`.

    Raises `AgentGone` if another process has ended the pool.
    """
    entry = rental_records.find(pool_id)
    # Without machines of its own it is left to its maker, which may have been another process.
    if (
        entry is None
        or entry.record.state != "up"
        or not entry.claim(maker=MakerProcess.this(), left_by=None)
    ):
        raise AgentGone(_ENDED)
    gone = [each for each in lack.lost if isinstance(each, AWSMachine)]
    before, since = entry.record, len(entry.record.attempts)
    cloud = AWSClient(before.profile, before.endpoint)
    nodes = [machine.nodes[0] for machine in gone]
    launch: Launch | None = None
    try:
        await _see_whose(spec, cloud, before)
        wish = await _wish(spec, before, lack, nodes)
        told = _numbered(tell, nodes)
        pair, host = key_pairs.kept(entry.folder), new_pair("")
        launch = Launch(LaunchRequest(wish.spec, cloud, entry, pair, host, wish.others), told)
        launched, machines = await _rented(launch, wish, cloud, entry, gone, told, nodes)
        await readied(machines)
        new = dict(zip(nodes, launched, strict=True))
        entry.note(machines=tuple(new.get(node, each) for node, each in enumerate(before.machines)))
    except BaseException as error:
        await asyncio.shield(_undone(cloud, entry, before, since, tell))
        if launch is not None and lack.bill is not None and (cost := launch.cost(time.time())):
            tell(CostChanged(replace(lack.bill, before=lack.bill.before + cost)))
        if (instead := _instead_of(error, spec, entry)) is not None:
            raise instead from error
        raise
    # Where the pool was ended meanwhile, the next call says so.
    with contextlib.suppress(FileNotFoundError), rental_records.as_far_as_it_can():
        key_pairs.access_to(entry.folder, entry.record, entry.record.machines)
    if lack.bill is not None:
        now = time.time()
        bill = replace(lack.bill, before=lack.bill.before + launch.cost(now))
        tell(CostChanged(bill_of(entry.record.machines, bill, now)))
    await asyncio.shield(_ended(cloud, entry, gone, tell))
    return machines


def _instead_of(error: BaseException, spec: PoolSpec, entry: RentalFolder) -> Exception | None:
    """What is raised instead of an error, if not that itself."""
    if isinstance(error, FileNotFoundError) and not entry.is_there:
        return AgentGone(_ENDED)
    if isinstance(error, AWSError):
        return StartError(spec.name, spell_fault(error))
    if isinstance(error, boot.EndedByEC2):
        why = f"EC2 took a new machine back before its first login ({error}); the next run tries again"
        return StartError(spec.name, why)
    return None


async def _see_whose(spec: PoolSpec, cloud: AWSClient, record: RentalRecord) -> None:
    """Raise `StartError` if these credentials are not of the account that rented the pool."""
    if account := await termination.other_account(cloud, record):
        why = (
            f"the credentials here belong to account {account}, and the pool to account "
            f"{record.account}: sign in there, or end the pool with `%sky down {spec.name}`"
        )
        raise StartError(spec.name, why)


def conducted(pool_id: str) -> None:
    """Note that this process is the pool's client: a sweep leaves a pool that has no machines to who replaces them."""
    _note(pool_id, maker=MakerProcess.this(), left_by=None)


def left(pool_id: str) -> None:
    """Note that this process, which was the pool's client, is it no more: without machines it is lost then."""
    _note(pool_id, left_by=MakerProcess.this())


def _note(pool_id: str, **changes: MakerProcess | None) -> None:
    with rental_records.as_far_as_it_can():
        entry = rental_records.find(pool_id)
        if entry is not None and entry.record.state == "up":
            entry.claim(**changes)


def cheaper(pool_id: str, lost: Sequence[Machine], bill: Bill) -> Bill:
    """The bill of a pool from now on without these machines."""
    entry = rental_records.find(pool_id)
    if entry is None:
        return bill
    names = {machine.name for machine in lost}
    left = [each for each in entry.record.machines if each.instance not in names]
    return bill_of(left, bill, time.time())


@dataclass(frozen=True)
class _Wish:
    """The `spec` and `offers` of new machines; `others` of the pool stay, `refused` are offers left out."""

    spec: PoolSpec
    offers: Sequence[Offer]
    others: Sequence[RunningInstance]
    refused: list[tuple[str, str]]


async def _wish(
    spec: PoolSpec, record: RentalRecord, lack: ReplacementRequest, nodes: Sequence[int]
) -> _Wish:
    """The offers for machines in place of the lost ones; raises `LaunchError` if there is none."""
    lost = [record.machines[node] for node in nodes]
    others = [each for node, each in enumerate(record.machines) if node not in nodes]
    quote = await quoting.quote_of(spec)
    offers, refused = offers_alike(spec, quote.offers, lost, others)
    if not offers:
        nothing = [(lost[0].type, f"there is none like it in {lost[0].region} now")]
        raise LaunchError(spec.name, refused or nothing)
    share = _share(spec, record, others, lack)
    if share is not None:
        offers, short = lasting(offers, len(nodes), share, SHORTEST)
        refused += short
        if not offers:
            raise LaunchError(spec.name, refused)
    wanted = replace(spec, nodes=len(nodes), ttl=lack.seconds, max_cost=share)
    return _Wish(wanted, offers, others, refused)


async def _rented(
    launch: Launch,
    wish: _Wish,
    cloud: AWSClient,
    entry: RentalFolder,
    gone: Sequence[AWSMachine],
    tell: Tell,
    nodes: Sequence[int],
) -> tuple[tuple[RunningInstance, ...], tuple[AWSMachine, ...]]:
    """New machines, made ready for their agents."""
    record, name = entry.record, wish.spec.name
    try:
        launched = await launch.run(wish.offers)
    except LaunchError as error:
        raise LaunchError(name, [*error.tried, *wish.refused]) from error
    # Logins to the old machines go on working while they live.
    lines, launched = await boot.log_in(cloud, entry, launched, tell, record.machines)
    async with boot.kept(entry, launched):
        readied = await made_ready(wish.spec, lines, tell)
    rental, spot = gone[0].rental, launched[0].spot
    made = machines_of(name, record.user_pool, rental, readied, nodes=nodes, spot=spot)
    return launched, made


def _share(
    spec: PoolSpec,
    record: RentalRecord,
    others: Sequence[RunningInstance],
    lack: ReplacementRequest,
) -> float | None:
    """The budget of the new machines, in dollars; raises `PoolError` if nothing is left."""
    if lack.bill is None or spec.max_cost is None:
        return None
    ends = None if record.deadline is None else record.deadline - BOOT
    share = share_of(lack.bill, others, ends, time.time())
    if share is not None and share <= 0:
        why = f"nothing of max_cost={spec.max_cost:g} is left for another machine"
        raise PoolError(spec.name, why)
    return share


async def _ended(
    cloud: AWSClient, entry: RentalFolder, gone: Sequence[AWSMachine], tell: Tell
) -> None:
    """End the old machines and hang up on them; a remark says what EC2 did not confirm."""
    names = [machine.name for machine in gone]
    nodes = tuple(node for machine in gone for node in machine.nodes)
    region = entry.record.machines[0].region
    try:
        left = await termination.end_some(cloud, entry, region, names)
        why = ""
    except AWSError as fault:
        left, why = names, f" ({spell_fault(fault)})"
    await release_spare(cloud, entry, set(names) - set(left))
    if left:
        tell(Remark(f"{', '.join(left)} may still run{why}; it ends by itself, and with the pool"))
    else:
        text = f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} ended, as EC2 says"
        tell(Step(nodes, "ending", text, done=True))
    await asyncio.gather(*(machine.let_go() for machine in gone))


async def _undone(
    cloud: AWSClient, entry: RentalFolder, before: RentalRecord, since: int, tell: Tell
) -> None:
    """End the machines that were launched in vain; those that cannot be ended now end with the pool."""
    left: list[str] = []
    entry.record = replace(entry.record, machines=before.machines)  # new ones may not be on disk
    # Another process may have ended the pool and removed its record.
    with contextlib.suppress(FileNotFoundError):
        for region in {each.region for each in entry.record.attempts[since:]}:
            try:
                left += await termination.end_machines(cloud, entry, region, since=since)
            except AWSError as fault:
                left.append(f"machines launched in {region} ({spell_fault(fault)})")
        await release_spare(cloud, entry)
        key_pairs.access_to(entry.folder, before, before.machines)
    tell(Phase(""))
    if left:
        tell(Remark(f"{', '.join(left)} may still run; it ends by itself, and with the pool"))


def _numbered(tell: Tell, nodes: Sequence[int]) -> Tell:
    """Reports about the first, second, ... new machine as reports about these nodes."""

    def told(word: Told) -> None:
        if isinstance(word, Step | NodeLogEntry):
            word = replace(word, nodes=tuple(nodes[each] for each in word.nodes))
        tell(word)

    return told
