"""`%sky check`: what the ranks of a pool are, whether they reach one another, how fast they reduce.

Each question is a run of its own, whose value is the answer; ranks listen between the first and
the last.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from skyward_nb.picture.check_report import lines
from skyward_nb.words.errors import PoolError
from skyward_nb.words.findings import Connection, Findings, RankFacts, ReachResult, Reductions
from skyward_nb.words.frameworks import with_what_they_need
from skyward_nb.words.spec import PoolSpec

_SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 64_000_000)
_ON_GPU = (256_000_000,)
_REDUCERS = ("torch", "jax")


class Asking(Protocol):
    """Has ranks (all, where none are named) evaluate an expression of the runtime."""

    def __call__(self, module: str, call: str, ranks: tuple[int, ...] = ()) -> Mapping[int, Any]:
        """Their values; raises what a run of a cell raises."""
        ...


def survey(spec: PoolSpec, ask: Asking) -> Iterator[Findings]:
    """The report on a pool, more of it each time; raises the errors of `ask`."""
    word = secrets.token_bytes(16)
    frameworks = tuple(with_what_they_need(spec.framework))
    try:
        answers = ask("survey", f"begin({frameworks!r}, {word!r})")
        facts: tuple[RankFacts, ...] = tuple(answers[rank] for rank in sorted(answers))
        found = Findings(ranks=facts)
        yield found
        found = replace(found, reach=_reach(facts, ask, word))
        yield found
        if pair := pair_to_measure(facts, found.reach or {}):
            found = replace(found, connection=_connection(facts, pair, ask, word))
    finally:
        with contextlib.suppress(PoolError):  # what is gone listens no more
            ask("reach", "close()")
    yield replace(found, reductions=_reductions(facts, frameworks, ask))


def survey_lines(found: Iterable[Findings]) -> Iterator[str]:
    """The lines that tell of a pool, each part as soon as it is known."""
    before: Findings | None = None
    for now in found:
        yield from lines(now, before)
        before = now


def _reach(
    facts: Sequence[RankFacts], ask: Asking, word: bytes
) -> dict[int, tuple[ReachResult, ...]]:
    if len(facts) < 2:
        return {}
    all_of_them = [(each.rank, each.address, each.port) for each in facts]
    answers = ask("reach", f"reach_others({all_of_them!r}, {word!r})")
    return {rank: tuple(ways) for rank, ways in answers.items()}


def _connection(
    facts: Sequence[RankFacts], pair: tuple[int, int], ask: Asking, word: bytes
) -> Connection:
    nodes = {each.rank: each.node for each in facts}
    to = next(each for each in facts if each.rank == pair[1])
    call = f"link({(to.rank, to.address, to.port)!r}, {word!r})"
    link = ask("reach", call, (pair[0],))[pair[0]]
    return Connection(ranks=pair, nodes=(nodes[pair[0]], nodes[pair[1]]), link=link)


def _reductions(facts: Sequence[RankFacts], frameworks: Sequence[str], ask: Asking) -> Reductions:
    if why := why_not_reduced(facts, frameworks):
        return Reductions(why_not=why)
    framework = next(name for name in _REDUCERS if name in facts[0].joined)
    sizes = _SIZES + (_ON_GPU if any("driver" in each.versions for each in facts) else ())
    timings = ask("reductions", f"all_reduces({framework!r}, {sizes!r})")[facts[0].rank]
    return Reductions(through=framework, sizes=sizes, timings=tuple(timings))


def pair_to_measure(
    facts: Sequence[RankFacts], ways: Mapping[int, Sequence[ReachResult]]
) -> tuple[int, int] | None:
    """The ranks between whose nodes the way there and back is longest, or the first two of a node."""
    nodes = {each.rank: each.node for each in facts}
    well = [
        (way.seconds, rank, way.to)
        for rank, each in sorted(ways.items())
        for way in each
        if not way.trouble
    ]
    between = [(s, rank, to) for s, rank, to in well if nodes[rank] != nodes[to]]
    if between:
        _, rank, to = max(between)
        return rank, to
    return (well[0][1], well[0][2]) if well else None


def why_not_reduced(facts: Sequence[RankFacts], frameworks: Sequence[str]) -> str:
    """Why all-reduce cannot be measured, in words; nothing where it can."""
    if len(facts) < 2 and facts[0].devices < 2:
        return "there is one rank"
    if not set(frameworks) & set(_REDUCERS):
        with_it = f"framework={','.join(frameworks)}" if frameworks else "no framework"
        return f"the pool is made with {with_it}, and it takes torch or jax"
    lacking = [each.rank for each in facts if not set(each.joined) & set(_REDUCERS)]
    if lacking:
        return f"rank {lacking[0]} is in no process group (it was destroyed there): %sky restart forms it anew"
    if len({each.joined for each in facts}) > 1:
        return "ranks are in different groups: %sky restart forms them anew"
    return ""
