"""What `%sky check` found, in sentences and plain tables. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from skyward_nb.picture.wording import EACH_RANK, columns
from skyward_nb.words.errors import spell_size
from skyward_nb.words.findings import (
    LISTENING,
    Connection,
    Findings,
    RankFacts,
    ReachResult,
    ReduceTiming,
    Reductions,
)
from skyward_nb.words.ranks import count_ranks, spell_ranks

_MOST_PAIRS = 20
_MOST_IN_A_MATRIX = 32

Ways = Mapping[int, Sequence[ReachResult]]
"""By rank, how it reached the others."""


def lines(found: Findings, before: Findings | None = None) -> Iterator[str]:
    """Lines on the findings, without those that were known `before`."""
    if before is None:
        yield from device_lines(found.ranks)
        yield from version_lines(found.ranks)
    if found.reach is not None and (before is None or before.reach is None):
        yield from reach_lines(found.ranks, found.reach)
    if found.reductions is not None and (before is None or before.reductions is None):
        yield from reduction_lines(found.ranks, found.reductions)
        if found.connection is not None:
            yield from link_lines(found.connection, found.reductions.timings)


def device_lines(facts: Sequence[RankFacts]) -> Iterator[str]:
    """Whether ranks have the same, then a table of them."""
    yield _alike(facts)
    yield from indented(columns([_TITLES, *_device_rows(facts)]))


_TITLES = ("rank", "node", "host", "device", "memory", "CPU threads")


def _alike(facts: Sequence[RankFacts]) -> str:
    parts = (
        difference(facts, _device, "devices differ"),
        difference(facts, lambda each: spell_size(each.memory), "memory differs"),
        difference(facts, lambda each: _threads(each, " threads"), "CPU differs"),
    )
    if found := [part for part in parts if part]:
        return "; ".join(found)
    first = facts[0]
    nodes = len({each.node for each in facts})
    who = "1 rank has" if len(facts) == 1 else f"all {len(facts)} ranks have the same:"
    where = f", on {nodes} nodes" if nodes > 1 else ""
    return f"{who} {_device(first)}, {spell_size(first.memory)}, {_threads(first, ' CPU threads')}{where}"


def difference(facts: Iterable[RankFacts], value: Callable[[RankFacts], str], what: str) -> str:
    """`devices differ: ranks 0-3 have A100, rank 4 has L4`; nothing where all have the same."""
    by_value: dict[str, list[int]] = {}
    for each in facts:
        by_value.setdefault(value(each), []).append(each.rank)
    if len(by_value) < 2:
        return ""
    return f"{what}: " + ", ".join(f"{_have(ranks)} {text}" for text, ranks in by_value.items())


def _have(ranks: Sequence[int]) -> str:
    several = len(ranks) > 1
    return f"rank{'s' * several} {spell_ranks(ranks)} {'have' if several else 'has'}"


def _device(facts: RankFacts) -> str:
    return f"{facts.devices} × {facts.device}" if facts.devices > 1 else facts.device


def _threads(facts: RankFacts, unit: str = "") -> str:
    """Those its framework uses, of those it may."""
    share = f"{facts.threads} of " if facts.threads != facts.cpus else ""
    return f"{share}{facts.cpus}{unit}"


def _device_rows(facts: Sequence[RankFacts]) -> Iterator[tuple[str, ...]]:
    """A row for each rank; of many, those that have the same on the same node share one."""
    together: dict[object, list[RankFacts]] = {}
    for each in facts:
        alike = (each.node, each.host, _device(each), each.memory, _threads(each))
        together.setdefault(each.rank if len(facts) <= EACH_RANK else alike, []).append(each)
    for group in together.values():
        one = group[0]
        ranks = spell_ranks([each.rank for each in group])
        memory = spell_size(one.memory)
        yield (ranks, str(one.node), one.host, _device(one), memory, _threads(one))


# ── versions ────────────────────────────────────────────────────────────────────────────


def version_lines(facts: Sequence[RankFacts]) -> Iterator[str]:
    """Packages that cannot be imported, versions that differ, and versions that are equal everywhere."""
    names = list(dict.fromkeys(name for each in facts for name in each.versions))
    same: list[str] = []
    differing: list[str] = []
    for name in names:
        there = [each for each in facts if name not in each.troubles]
        found = difference(there, lambda each, of=name: each.versions.get(of, "none"), name)
        if found:
            differing.append(found)
        else:
            same.append(f"{name} {there[0].versions[name]}")
    for trouble, ranks in _troubles(facts).items():
        yield f"{count_ranks(ranks)}: {trouble}"
    if differing:
        yield "versions differ"
        yield from indented(differing)
    if same:
        where = "" if len(facts) == 1 else "the same on all ranks: "
        yield f"versions: {'' if differing else where}{', '.join(same)}"


def _troubles(facts: Iterable[RankFacts]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for each in facts:
        for name, why in each.troubles.items():
            text = why if name == LISTENING else f"{name} cannot be imported: {why}"
            found.setdefault(text, []).append(each.rank)
    return found


# ── reach ───────────────────────────────────────────────────────────────────────────────


def reach_lines(facts: Sequence[RankFacts], ways: Ways) -> Iterator[str]:
    """One sentence where all ranks reach one another; else a matrix, and the pairs that do not."""
    if len(facts) < 2:
        yield "there is no second rank to reach"
        return
    known = {each.rank: each for each in facts}
    failed = [(rank, way) for rank in known for way in ways.get(rank, ()) if way.trouble]
    if not failed:
        times = [way.seconds for each in ways.values() for way in each]
        pairs = len(facts) * (len(facts) - 1) // 2
        which = (
            "both ranks reach each other"
            if pairs == 1
            else f"all {pairs} pairs of ranks reach each other"
        )
        yield f"{which} (TCP, round trip {_range(times)})"
        return
    total = len(facts) * (len(facts) - 1)
    yield f"{len(failed)} of {total} ways between ranks fail{'s' * (len(failed) == 1)}"
    if len(facts) <= _MOST_IN_A_MATRIX:
        yield from indented(_matrix(tuple(known), ways))
    for rank, way in failed[:_MOST_PAIRS]:
        to = known[way.to]
        yield f"rank {rank} ({known[rank].address}) does not reach rank {way.to} ({_listens(to)}): {way.trouble}"
    if (more := len(failed) - _MOST_PAIRS) > 0:
        yield f"and {more} more"


def _listens(facts: RankFacts) -> str:
    return f"{facts.address} port {facts.port}" if facts.port else facts.address


def _matrix(ranks: Sequence[int], ways: Ways) -> list[str]:
    """Rows reach columns."""
    rows: list[tuple[str, ...]] = [("from \\ to", *map(str, ranks))]
    for rank in ranks:
        marks = {way.to: "fails" if way.trouble else "ok" for way in ways.get(rank, ())}
        rows.append((str(rank), *(marks.get(to, "·") for to in ranks)))
    return columns(rows)


# ── all-reduce ──────────────────────────────────────────────────────────────────────────


def reduction_lines(facts: Sequence[RankFacts], found: Reductions) -> Iterator[str]:
    """A table of all-reduces and which sizes were left out, or why nothing was measured."""
    if found.why_not:
        yield f"all-reduce is not measured: {found.why_not}"
        return
    places = found.timings[0].places
    what = "devices" if places != len(facts) else "ranks"
    how = f"of {places} {what} through {found.through}"
    yield f"all-reduce {how}; algorithm and bus bandwidth as nccl-tests counts them"
    rows = [
        (
            spell_size(each.size),
            spell_time(each.seconds),
            f"{spell_size(each.algorithm_speed)}/s",
            f"{spell_size(each.bus_speed)}/s",
        )
        for each in found.timings
    ]
    yield from indented(columns([("size", "time", "algorithm", "bus"), *rows]))
    if len(rows) < len(found.sizes):
        yield f"  {spell_size(found.sizes[len(rows)])} and more would have taken too long"


def link_lines(found: Connection, timings: Sequence[ReduceTiming]) -> Iterator[str]:
    """What one connection carries, and how all-reduce compares with it."""
    link = found.link
    yield (
        f"one TCP connection between {_between(found)}: {spell_size(link.speed)}/s, "
        f"round trip {spell_time(link.round_trip)}"
    )
    if timings:
        best = max(timings, key=lambda each: each.bus_speed)
        yield (
            f"all-reduce at its best ({spell_size(best.size)}) has {_compared(best.bus_speed, link.speed)} "
            f"of that; one of {spell_size(timings[0].size)} takes "
            f"{timings[0].seconds / link.round_trip:.1f} round trips"
        )


def _between(found: Connection) -> str:
    first, second = found.nodes
    ranks = f"ranks {found.ranks[0]} and {found.ranks[1]}"
    return f"nodes {first} and {second} ({ranks})" if first != second else ranks


def _compared(speed: float, of: float) -> str:
    ratio = speed / of
    return f"{ratio * 100:.0f} %" if ratio < 2 else f"{ratio:.1f} times the speed"


def indented(lines: Iterable[str]) -> list[str]:
    """Lines that belong to the one above them."""
    return [f"  {line}" for line in lines]


def spell_time(seconds: float) -> str:
    """`34 µs`, `1.2 ms`, `3 s`."""
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        if seconds * factor < 999.5:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def _range(times: Sequence[float]) -> str:
    low, high = spell_time(min(times)), spell_time(max(times))
    return low if low == high else f"{low} to {high}"
