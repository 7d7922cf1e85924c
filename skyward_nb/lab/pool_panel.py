"""The data of the panel: each pool of this user, its client, and the state of its ranks in words."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from skyward_nb.pool import registry
from skyward_nb.pool.client_names import is_running, spell_client
from skyward_nb.pool.registry import PoolEntry
from skyward_nb.protocol.events import AgentStatus
from skyward_nb.protocol.message_parts import Client
from skyward_nb.providers.folders import runtime_root
from skyward_nb.reports.found_pools import FoundPool
from skyward_nb.reports.hang_check import CheckedPool, RunStanding, standing
from skyward_nb.reports.run_logs import find_run, last_lines, log_lines, spell_line
from skyward_nb.reports.status import PoolRow, row_of, unasked_row
from skyward_nb.show.run_progress import RunProgress, newest_progress, read_progress
from skyward_nb.words.errors import PoolError

MOST_LINES = 500
_MOST_TEXT = 200_000


class PanelPool(msgspec.Struct, frozen=True):
    """A pool; `handle` is its name, or its id if others have that name.

    `kernel` is the id of the kernel of this server that conducts it, or "". `is_asked` says whether its
    agents were: a pool on other machines is known by its entry alone, so that no poll opens a line.
    `progress` is what its client wrote last of a run that goes on.
    """

    pool: PoolRow
    handle: str
    kernel: str = ""
    is_asked: bool = True
    progress: RunProgress | None = None


class PanelState(msgspec.Struct, frozen=True):
    """All pools, the youngest first, and the folder whose pools they are."""

    pools: tuple[PanelPool, ...]
    folder: str


class RunOutput(msgspec.Struct, frozen=True):
    """The last lines of a run, as they are printed, and how many were before."""

    run: str
    left_out: int
    lines: tuple[str, ...]


def panel_state(kernels: Mapping[int, str]) -> PanelState:
    """The pools of this user; `kernels` are the ids of this server's kernels, by their process ids."""
    entries = registry.entries()
    conditions = registry.conditions(entry for entry in entries if entry.is_here)
    asked = {entry.pool_id: now for entry, now in conditions}
    there = [entry for entry in entries if entry.pool_id in asked or not entry.is_here]
    names = [entry.spec.name for entry in there]
    return PanelState(
        tuple(
            _pool(
                entry, asked.get(entry.pool_id), kernels, is_alone=names.count(entry.spec.name) == 1
            )
            for entry in there
        ),
        str(runtime_root()),
    )


def _pool(
    entry: PoolEntry, now: AgentStatus | None, kernels: Mapping[int, str], *, is_alone: bool
) -> PanelPool:
    row = unasked_row(entry) if now is None else row_of(FoundPool(entry, now))
    progress = newest_progress(entry) if now is None else None
    if row.run is not None:
        progress = read_progress(entry, row.run.number)
    return PanelPool(
        row,
        row.name if is_alone else row.id,
        kernels.get(row.client.process, "") if row.client is not None else "",
        is_asked=now is not None,
        progress=progress,
    )


def client_to_interrupt(pool_id: str) -> Client:
    """The process to interrupt so that the run of this pool ends.

    Raises `PoolError` where nothing runs, or nobody on this machine conducts the pool.
    """
    entry = find_entry(pool_id)
    name, client = entry.spec.name, entry.client
    if entry.is_here:
        now = registry.condition(entry)
        if now is None:
            raise PoolError(name, f"pool {name!r} does not answer; %sky status tells of it")
        if not now.running:
            raise PoolError(name, f"nothing runs on pool {name!r}")
        client = now.client
    if client is None:
        raise PoolError(
            name,
            f"pool {name!r} has no client that could be interrupted: %sky attach pool={pool_id} "
            "shows its run, and the stop button there ends it",
        )
    if not is_running(client):
        raise PoolError(
            name, f"pool {name!r} is in use by {spell_client(client)}: interrupt it there"
        )
    return client


def pool_standing(pool_id: str) -> RunStanding:
    """Where the ranks of a pool's run are, and who waits for whom; raises `PoolError`."""
    entry = find_entry(pool_id)
    whose = entry.program or entry.notebook or "another kernel"
    return standing(None, CheckedPool(entry, whose))


def run_output(pool_id: str) -> RunOutput:
    """The last lines of the newest run of a pool; raises `OptionError` where none is on disk."""
    kept = find_run("", pool_id)
    lines, left_out = last_lines(log_lines(kept, None), MOST_LINES, _MOST_TEXT)
    return RunOutput(kept.name, left_out, tuple(map(spell_line, lines)))


def find_entry(pool_id: str) -> PoolEntry:
    """The entry of a pool; raises `PoolError` where it is gone."""
    for entry in registry.entries():
        if entry.pool_id == pool_id:
            return entry
    raise PoolError(pool_id, f"pool {pool_id} is not up any more")
