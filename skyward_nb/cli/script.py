"""Runs a script on every rank of a pool, and reports how it ended there."""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator
from typing import Literal

import msgspec

from skyward_nb.cli.pool_client import PoolClient
from skyward_nb.options.cell_options import CellOptions
from skyward_nb.options.specs import check_profile
from skyward_nb.pool.installing import lost_words
from skyward_nb.reports.rank_failures import RankFailure
from skyward_nb.reports.scripts import Script
from skyward_nb.show.display import RunDisplay, spell_result
from skyward_nb.view.run_view import RankState, all_notes
from skyward_nb.words.errors import RankDied, SkyError
from skyward_nb.words.ranks import shown_ranks

INTERRUPTED = 130
"""The exit code of what a person has interrupted."""


class RankEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a script on a rank, and its last metrics; null for those that are not finite."""

    rank: int
    node: int
    state: RankState
    metrics: dict[str, float | None]


class ScriptEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a script ended: `failures` are what ranks raised, `died` how processes of ranks ended.

    `exit_code` is 0, 130 when it was interrupted, that of the `sys.exit` of the rank that failed
    first, else 1; it is 1, too, where files that it was to bring did not come. `traceback` is how that reads, `seconds` how long the script ran.
    """

    script: str
    pool: str
    run: str
    state: Literal["finished", "failed", "interrupted"]
    exit_code: int
    headline: str
    seconds: float
    ranks: tuple[RankEnd, ...]
    failures: tuple[RankFailure, ...]
    died: dict[int, str]
    traceback: tuple[str, ...]
    notes: tuple[str, ...]


def run_script(
    there: PoolClient, script: Script, options: CellOptions, display: RunDisplay
) -> ScriptEnd:
    """Run a script on all ranks, each in a process that nobody has used, and leave none used.

    Returns however it ended. Raises `SkyError` when it did not begin.
    """
    pool = there.pool
    script.check_pool(pool.spec)
    display.note(*script.notes(pool.spec))
    check_profile(pool.spec, options.profile)
    for stream, which in (("stdout", options.stdout), ("stderr", options.stderr)):
        display.show_only(stream, shown_ranks(stream, which, pool.spec.world_size))
    if there.is_guest and (gone := there.begin_afresh()):
        display.change(notes=lost_words(gone))
    error = _run(there, script, options, display)
    if there.stays and not pool.closed:
        pool.restart(lambda _: None)
    return _end_of(script, pool.spec.name, display, error)


def _run(
    there: PoolClient, script: Script, options: CellOptions, display: RunDisplay
) -> BaseException | None:
    """Run it; what ended it, where that was not its own end."""
    name = script.name
    ranks = there.pool.ranks
    request = script.request(ranks, options, there.pool.spec)
    title = f"Running {name} on {spell_result(ranks, there.pool.spec.world_size)}"
    try:
        there.run(request, display, title)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        if display.view.ended is None:
            raise
        return error
    return None


def _end_of(
    script: Script, pool: str, display: RunDisplay, error: BaseException | None
) -> ScriptEnd:
    view = display.view
    state = view.state if view.state in ("finished", "interrupted") else "failed"
    return ScriptEnd(
        script=str(script.path),
        pool=pool,
        run=view.run,
        state=state,
        exit_code=_exit_code(state, error) or int(display.lacks_files),
        headline=view.headline,
        seconds=round((view.ended or view.now) - view.ran_from, 3),
        ranks=tuple(
            RankEnd(
                rank=rank,
                node=view.nodes.get(rank, 0),
                state=now.state,
                metrics={
                    name: value if math.isfinite(value) else None
                    for name, value in now.metrics.items()
                },
            )
            for rank, now in sorted(view.ranks.items())
        ),
        failures=tuple(getattr(error, "failures", ())),
        died=error.ranks if isinstance(error, RankDied) else {},
        traceback=tuple(_shown(error)) if error is not None and state == "failed" else (),
        notes=all_notes(view),
    )


def _exit_code(state: str, error: BaseException | None) -> int:
    if state == "interrupted":
        return INTERRUPTED
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        return error.code & 0xFF or 1
    return 0 if error is None else 1


def _shown(error: BaseException) -> Iterator[str]:
    """The lines of an exception as its rank showed it; none for a `sys.exit`."""
    if isinstance(error, SystemExit):
        return
    render = getattr(error, "_render_traceback_", None)
    if render is not None:
        yield from render()
    elif isinstance(error, SkyError):
        yield error.message
    else:
        yield from "".join(traceback.format_exception_only(error)).splitlines()
