"""`%sky check hang`: where the ranks of a run that goes on are, and for whom they wait."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from skyward_nb.hangs.hang import StalledRun, report, sentence
from skyward_nb.hangs.rank_locations import whereabouts
from skyward_nb.pool import registry
from skyward_nb.protocol.events import AgentStatus, RunBegan
from skyward_nb.reports.source_lines import sources
from skyward_nb.words.errors import PoolError
from skyward_nb.words.units import clock

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from skyward_nb.pool.pool import Pool


@dataclass(frozen=True)
class CheckedPool:
    """A pool to look at; `whose` says what made it, if that was not this notebook."""

    entry: registry.PoolEntry
    whose: str = ""

    @property
    def name(self) -> str:
        """Its name."""
        return self.entry.spec.name

    @property
    def pool_id(self) -> str:
        """Its id."""
        return self.entry.pool_id


class RankPlace(msgspec.Struct, frozen=True):
    """Where a rank is: the collective it `waits_in`, or "", and its line of the user's code."""

    waits_in: str
    place: str


class RunStanding(msgspec.Struct, frozen=True, kw_only=True):
    """How the run of a pool stands: `what` runs for so many seconds, and where its ranks are.

    `whose` names the maker of the pool, if that was not this notebook. `sentence` says which rank waits for
    whom, `stacks` has each distinct stack once. A pool that runs nothing, or that does not answer,
    has none of these.
    """

    pool: str
    id: str
    whose: str = ""
    state: Literal["running", "idle", "silent"]
    what: str = ""
    seconds: float = 0.0
    ranks: dict[int, RankPlace] = {}
    sentence: str = ""
    stacks: str = ""

    @property
    def title(self) -> str:
        """The pool in words."""
        return f"pool {self.pool}" + (f" of {self.whose}" if self.whose else "")


def subjects(pools: Iterable[Pool], name: str | None) -> list[CheckedPool]:
    """The pools that are meant: those of this notebook first, then those of others.

    Raises `PoolError` where none has this name.
    """
    own = [CheckedPool(pool.entry) for pool in pools if not pool.closed]
    known = {subject.pool_id for subject in own}
    others = [
        CheckedPool(entry, entry.program or entry.notebook or "another kernel")
        for entry in registry.entries()
        if entry.pool_id not in known
    ]
    found = [each for each in (*own, *others) if name in (None, each.name, each.pool_id)]
    if name is not None and not found:
        there = ", ".join(dict.fromkeys(each.name for each in (*own, *others)))
        hint = f"pools that are up: {there}" if there else "no pool is up"
        raise PoolError(name, f"there is no pool {name!r}; {hint}")
    return found


def standing(shell: InteractiveShell | None, subject: CheckedPool) -> RunStanding:
    """How the run of a pool stands now, as its agent tells anybody of this user."""
    condition = registry.condition(subject.entry)
    known = RunStanding(pool=subject.name, id=subject.pool_id, whose=subject.whose, state="silent")
    if condition is None:
        return known
    if condition.unseen is None or not condition.running:
        return replace(known, state="idle")
    return _of_run(known, shell, subject, condition, condition.unseen)


def _of_run(
    known: RunStanding,
    shell: InteractiveShell | None,
    subject: CheckedPool,
    condition: AgentStatus,
    began: RunBegan,
) -> RunStanding:
    texts = registry.stacks(subject.entry, condition.running)
    source = sources(None if subject.whose else shell, began.card)
    everyone = range(subject.entry.spec.world_size)
    halt = StalledRun(
        running={rank: whereabouts(texts.get(rank, ""), source) for rank in condition.running},
        ended={rank: "ended" for rank in began.ranks if rank not in condition.running},
        outside=tuple(rank for rank in everyone if rank not in began.ranks),
        is_past=False,
    )
    return replace(
        known,
        state="running",
        what=began.card.what,
        seconds=max(0.0, time.time() - began.card.began),
        ranks={rank: RankPlace(at.waits_in, at.place) for rank, at in halt.running.items()},
        sentence=sentence(halt),
        stacks=report(halt),
    )


def standing_lines(found: Iterable[RunStanding]) -> Iterator[str]:
    """Lines on the place of each pool's run; or that a pool runs nothing."""
    idle: list[str] = []
    silent: list[str] = []
    is_any = False
    for each in found:
        if each.state == "running":
            is_any = True
            yield f"{each.title}: {each.what} has run for {clock(each.seconds)}"
            yield each.sentence
            yield each.stacks
        else:
            (silent if each.state == "silent" else idle).append(each.title)
    for title in silent:
        yield f"{title} does not answer; %sky status tells whether it is alive"
    if not is_any and not silent:
        are = "is" if len(idle) == 1 else "are"
        yield (
            f"nothing runs: {', '.join(idle)} {are} idle" if idle else "nothing runs: no pool is up"
        )
