"""`%sky check hang`: where the ranks of a run that goes on are, and for whom they wait."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from IPython.core.interactiveshell import InteractiveShell

from skyward_nb.api.sources import sources
from skyward_nb.picture.wording import clock
from skyward_nb.pool import registry
from skyward_nb.pool.hang import Halt, report, sentence
from skyward_nb.pool.pool import Pool
from skyward_nb.pool.whereabouts import whereabouts
from skyward_nb.words.errors import PoolError
from skyward_nb.words.events import Began, Condition


@dataclass(frozen=True)
class Subject:
    """A pool to look at; `notebook` is the one that made it, if that is another one."""

    name: str
    pool_id: str
    world_size: int
    notebook: str = ""


def subjects(pools: Iterable[Pool], name: str | None) -> list[Subject]:
    """The pools that are meant: those of this notebook first, then those of others.

    Raises `PoolError` where none has this name.
    """
    own = [
        Subject(pool.spec.name, pool.pool_id, pool.spec.world_size)
        for pool in pools
        if not pool.closed
    ]
    known = {subject.pool_id for subject in own}
    others = [
        Subject(
            entry.spec.name,
            entry.pool_id,
            entry.spec.world_size,
            entry.notebook or "another kernel",
        )
        for entry in registry.entries()
        if entry.pool_id not in known
    ]
    found = [each for each in (*own, *others) if name in (None, each.name, each.pool_id)]
    if name is not None and not found:
        there = ", ".join(dict.fromkeys(each.name for each in (*own, *others)))
        hint = f"pools that are up: {there}" if there else "no pool is up"
        raise PoolError(name, f"there is no pool {name!r}; {hint}")
    return found


def check_hang(shell: InteractiveShell, found: Iterable[Subject]) -> Iterator[str]:
    """Lines that tell of each pool's run where it is; of those that run nothing, that they do not."""
    idle: list[Subject] = []
    silent: list[Subject] = []
    is_any = False
    for subject in found:
        condition = registry.condition(subject.pool_id)
        if condition is None:
            silent.append(subject)
        elif condition.unseen is None or not condition.running:
            idle.append(subject)
        else:
            is_any = True
            yield from _of_run(shell, subject, condition, condition.unseen)
    for subject in silent:
        yield f"{_title(subject)} does not answer; %sky status tells whether it is alive"
    if not is_any and not silent:
        names = ", ".join(_title(subject) for subject in idle)
        yield (
            f"nothing runs: {names} {'is' if len(idle) == 1 else 'are'} idle"
            if idle
            else ("nothing runs: no pool is up")
        )


def _of_run(
    shell: InteractiveShell, subject: Subject, condition: Condition, began: Began
) -> Iterator[str]:
    texts = registry.stacks(subject.pool_id, condition.running)
    source = sources(None if subject.notebook else shell, began.card)
    everyone = range(subject.world_size)
    halt = Halt(
        running={rank: whereabouts(texts.get(rank, ""), source) for rank in condition.running},
        ended={rank: "ended" for rank in began.ranks if rank not in condition.running},
        outside=tuple(rank for rank in everyone if rank not in began.ranks),
        is_past=False,
    )
    age = clock(max(0.0, time.time() - began.card.began))
    yield f"{_title(subject)}: Cell In[{began.card.number}] has run for {age}"
    yield sentence(halt)
    yield report(halt)


def _title(subject: Subject) -> str:
    return f"pool {subject.name}" + (f" of {subject.notebook}" if subject.notebook else "")
