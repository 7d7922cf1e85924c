"""The pools there are, as data and as lines: what `%sky status` and a terminal show."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from skyward_nb.picture.record import Cost, cost_of
from skyward_nb.pool.client_names import spell_client
from skyward_nb.protocol.events import RunBegan
from skyward_nb.reports.found_pools import FoundPool
from skyward_nb.words.offers import spell_dollars
from skyward_nb.words.units import clock

if TYPE_CHECKING:
    from skyward_nb.pool.pool import Pool
    from skyward_nb.pool.registry import PoolEntry
    from skyward_nb.protocol.events import AgentStatus, RankLost
    from skyward_nb.view.run_view import RunView
    from skyward_nb.words.spec import PoolSpec


class RankRow(msgspec.Struct, frozen=True):
    """A rank and its process; `lost` says in words how that ended."""

    rank: int
    node: int
    process: int | None
    lost: str = ""


class ClientRow(msgspec.Struct, frozen=True):
    """The process that conducts a pool, and its notebook or what it is instead."""

    process: int
    host: str
    notebook: str
    program: str


class RunRow(msgspec.Struct, frozen=True):
    """A run that goes on (`running` ranks), or has ended and was not seen; `began` since 1970, in the background if `detached`."""

    number: int
    what: str
    began: float
    running: tuple[int, ...]
    detached: bool = False


class PoolRow(msgspec.Struct, frozen=True, kw_only=True):
    """A pool that is alive; `started` in seconds since 1970, `ends_in` in seconds from now.

    It ends by itself only where no `client` is. `where` says in words which other process has it,
    `doing` what it runs, `remarks` how its ranks keep up with one another. A pool without a bill has no
    `cost`.
    """

    name: str
    id: str
    spec: str
    provider: str
    nodes: int
    ranks_per_node: int
    accelerator: str | None
    framework: tuple[str, ...]
    keep: bool
    notebook: str = ""
    program: str = ""
    started: float
    generation: int
    client: ClientRow | None = None
    ends_in: float | None = None
    run: RunRow | None = None
    where: str = ""
    doing: str = ""
    ranks: tuple[RankRow, ...] = ()
    remarks: tuple[str, ...] = ()
    cost: Cost | None = None


def row_of(left: FoundPool) -> PoolRow:
    """The row of a pool as its agent tells anybody of this user."""
    entry, now = left.entry, left.condition
    began, client = now.unseen, now.client
    return replace(
        unasked_row(entry),
        generation=now.generation,
        client=client and ClientRow(client.pid, client.host, client.notebook, client.program),
        ends_in=now.left,
        run=began and _run_row(began, now.running),
        where=left.where(),
        doing=left.doing(),
        ranks=tuple(_rank_rows(entry.spec, now)),
    )


def _run_row(began: RunBegan, running: tuple[int, ...]) -> RunRow:
    card = began.card
    return RunRow(began.run, card.what, card.began, running, card.detached)


def _rank_rows(spec: PoolSpec, now: AgentStatus) -> Iterator[RankRow]:
    """The ranks of a pool; where some have begun, those that are missing have ended."""
    for rank in range(spec.world_size) if now.ranks else ():
        lost = "" if rank in now.ranks else now.ended.get(rank, "ended")
        yield RankRow(rank, rank // spec.slots, now.pids.get(rank), lost)


def unasked_row(entry: PoolEntry) -> PoolRow:
    """The row of a pool as its entry has it: its agents, on other machines, are not asked."""
    client = entry.client if entry.is_used else None
    return PoolRow(
        **_shape(entry.spec),
        id=entry.pool_id,
        notebook=entry.notebook,
        program=entry.program,
        started=entry.started,
        generation=0,
        client=client and ClientRow(client.pid, client.host, client.notebook, client.program),
        where=f"in use by {spell_client(client)}" if client else "left on other machines",
        cost=entry.bill and cost_of(entry.bill, time.time()),
    )


def own_row(pool: Pool, gone: Mapping[int, RankLost], remarks: tuple[str, ...]) -> PoolRow:
    """The row of a pool that is conducted here; `gone` are ranks whose processes ended."""
    return PoolRow(
        **_shape(pool.spec),
        id=pool.pool_id,
        started=pool.context.started,
        generation=pool.generation,
        ranks=tuple(
            RankRow(
                info.rank,
                info.node,
                pool.pids.get(info.rank),
                gone[info.rank].how if info.rank in gone else "",
            )
            for info in pool.infos
        ),
        remarks=(*pool.renewal.notices, *remarks),
        cost=pool.bill and cost_of(pool.bill, time.time()),
    )


def cost_words(row: Cost) -> str:
    """What a pool costs, in words."""
    if row.hourly is None:
        return "price unknown"
    so_far = f", {spell_dollars(row.so_far)} so far" if row.so_far is not None else ""
    most = f" of at most {spell_dollars(row.most)}" if row.most is not None else ""
    return f"{spell_dollars(row.hourly)} / h{so_far}{most}"


def _shape(spec: PoolSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "spec": str(spec),
        "provider": spec.provider,
        "nodes": spec.nodes,
        "ranks_per_node": spec.slots,
        "accelerator": str(spec.accelerator) if spec.accelerator else None,
        "framework": spec.framework,
        "keep": spec.keep,
    }


def row_lines(row: PoolRow) -> Iterator[str]:
    """A line on the pool, and one for each of its ranks."""
    age = clock(max(0.0, time.time() - row.started))
    how = (row.where, row.doing) if row.where else (f"up {age}", f"generation {row.generation}")
    costs = (cost_words(row.cost),) if row.cost is not None else ()
    yield " · ".join((f"{row.name}: {row.spec}", *how, *costs))
    for each in row.ranks:
        how = f"process {each.process or '-'}"
        if each.lost:
            how = f"{each.lost}; the next run starts all ranks anew"
        yield f"  rank {each.rank}  node {each.node}  {how}"
    for said in row.remarks:
        yield f"  {said}"


def balance(view: RunView | None) -> tuple[str, ...]:
    """How ranks kept up with one another in the cell that runs, or ran last."""
    from skyward_nb.view.slow_ranks import slow_in, slow_words
    from skyward_nb.view.stragglers import behind, imbalance

    if view is None:
        return ()
    longer = slow_words(slow_in(view.ranks), over=view.ended is not None)
    if view.ended is None:
        late = behind(view.ranks)
        found = [f"now: rank {rank} is {how}" for rank, how in late.items()]
        return (*found, f"now: {longer}") if longer else tuple(found)
    told = (imbalance(view.ranks, view.ran_from), longer)
    return tuple(f"in the last cell {each}" for each in told if each)
