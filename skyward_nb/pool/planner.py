"""What must travel so that some names of the notebook are whole on a rank, packed, in order.

It follows what code reads, what values are instances of, and which objects names share. It
knows nothing of what ranks have: that is the ledger's.

A name that holds an object which another name holds, too, does not take a copy along: it points
at the place in the other one. The name that was there first is the holder.
"""

from __future__ import annotations

import time
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

from skyward_nb.wire.definitions import is_label
from skyward_nb.wire.paths import Path, find_paths
from skyward_nb.wire.payload import Bundle, pack
from skyward_nb.wire.sizes import looks_big


@dataclass
class Unit:
    """What travels as one: a name's value, a definition, or several that form a circle.

    `content` is the digest of all that is in it, whoever holds it; `holders` are labels that hold
    parts of it, `identities` its other parts by id, `seconds` how long packing took.
    """

    labels: tuple[str, ...]
    values: tuple[object, ...]
    bundle: Bundle
    content: str
    seconds: float
    holders: set[str] = field(default_factory=set)
    identities: dict[int, object] | None = None
    """None for one of a great many objects, whose parts are not listed."""

    @property
    def whole(self) -> object:
        """What was packed."""
        return self.values[0] if len(self.values) == 1 else self.values

    @property
    def needs(self) -> set[str]:
        """Labels of what must be there before it."""
        return (self.bundle.definitions.keys() | self.holders) - set(self.labels)

    @property
    def shown(self) -> str:
        """What a person calls it."""
        value = self.values[0]
        return value.__qualname__ if is_label(self.labels[0]) else self.labels[0]  # type: ignore[attr-defined]


@dataclass
class Known:
    """What earlier plans found: ids of the objects in a name, and whose parts it points at.

    `ages` orders names by when they were first sent.
    """

    identities: dict[str, frozenset[int]] = field(default_factory=dict)
    holders: dict[str, frozenset[str]] = field(default_factory=dict)
    ages: dict[str, int] = field(default_factory=dict)


class Planner:
    """Packs what one run needs. Raises `PayloadError` for the first name that cannot travel.

    `skip` says which names ranks have for good, `tell` hears of what may take a moment,
    `version` tells of project modules which content they have now.
    """

    def __init__(
        self,
        namespace: Mapping[str, Any],
        known: Known,
        skip: Callable[[str, object], bool],
        tell: Callable[[str], None],
        version: Callable[[Iterable[str]], str] = lambda _: "",
    ) -> None:
        self._namespace = namespace
        self._known = known
        self._skip = skip
        self._tell = tell
        self._version = version
        self.units: dict[str, Unit] = {}
        self.skipped: set[str] = set()
        self.absent: set[str] = set()
        self.tokens: set[str] = set()
        self.modules: set[str] = set()

    def plan(self, reads: Iterable[str]) -> list[Unit]:
        """The units that these names need, each after those it points at."""
        self._add(reads)
        self._share()
        self._leave_out_the_rest()
        return self._in_order()

    # ── what is needed ──────────────────────────────────────────────────────────────────

    def _add(self, names: Iterable[str]) -> None:
        todo: list[tuple[str, object]] = [*self._values(sorted(names))]
        while todo:
            label, value = todo.pop()
            if label in self.units:
                continue
            unit = self._pack((label,), (value,))
            self.units[label] = unit
            bundle = unit.bundle
            self.tokens |= bundle.tokens
            self.modules |= bundle.modules
            todo += bundle.definitions.items()
            wanted = bundle.reads | self._known.holders.get(label, frozenset())
            todo += self._values(sorted(wanted))

    def _values(self, names: Iterable[str]) -> Iterator[tuple[str, object]]:
        for name in names:
            if name in self.units or name in self.skipped:
                continue
            if name not in self._namespace:
                self.absent.add(name)
                continue
            value = self._namespace[name]
            if self._skip(name, value):
                self.skipped.add(name)
            else:
                yield name, value

    def _pack(
        self,
        labels: tuple[str, ...],
        values: tuple[object, ...],
        cuts: dict[int, tuple[str, Path]] | None = None,
        compact: Collection[int] = (),
    ) -> Unit:
        began = time.perf_counter()
        roots = values if any(map(is_label, labels)) else ()
        value = values[0] if len(values) == 1 else values
        called = labels[0]
        if is_label(called):
            called = values[0].__qualname__  # type: ignore[attr-defined]
        if any(map(looks_big, values)):
            self._tell(called)
        bundle = pack(called, value, to_ranks=True, roots=roots, cuts=cuts, compact=compact)
        content = bundle.digest
        if isinstance(value, types.FunctionType | type) and not bundle.definitions:
            # Only a reference into a module: what that is changes with the module's source.
            content += self._version(bundle.modules)
        return Unit(labels, values, bundle, content, time.perf_counter() - began)

    # ── objects that names share ────────────────────────────────────────────────────────

    def _share(self) -> None:
        """Have every shared object in one unit, and the others point at it."""
        if len(self.units) < 2 and not self._known.identities:
            return
        for unit in self.units.values():
            _list_parts(unit)
        self._add_remembered_sharers()
        labels = list(self.units)
        if self._nothing_shared():
            return
        places = {name: place for place, name in enumerate(self._namespace)}
        labels.sort(key=lambda label: self._age(label, places))
        before: list[str] = []
        for label in labels:
            self._point(label, before)
            before.append(label)

    def _nothing_shared(self) -> bool:
        seen: set[int] = set()
        for unit in self.units.values():
            if unit.identities is None or not seen.isdisjoint(unit.identities):
                return False
            seen |= unit.identities.keys()
        return True

    def _age(self, label: str, places: Mapping[str, int]) -> tuple[float, int]:
        """Definitions come first, then what was sent first, then what was bound first."""
        return self._known.ages.get(label, float("inf")), places.get(label, -1)

    def _add_remembered_sharers(self) -> None:
        """Add names sent before, and not read now, that hold an object of those read now."""
        mine = {key for unit in self.units.values() for key in unit.identities or ()}
        for name, identities in self._known.identities.items():
            if name in self.units or name not in self._namespace or mine.isdisjoint(identities):
                continue
            # The ids are from then: look again before believing them.
            value = self._namespace[name]
            if self._skip(name, value):
                continue
            unit = self._pack((name,), (value,))
            _list_parts(unit)
            if not mine.isdisjoint(unit.identities or ()):
                self._add([name])
                for each in self.units.values():
                    if each.identities is None:
                        _list_parts(each)

    def _point(self, label: str, before: list[str]) -> None:
        """Pack a unit anew, pointing at the parts that units before it hold."""
        unit = self.units[label]
        cuts: dict[int, tuple[str, Path]] = {}
        sharers: set[str] = set()
        for holder in before:
            shared = self._shared(unit, self.units[holder]) - cuts.keys()
            if shared:
                sharers.add(holder)
                paths = find_paths(self._value_of(holder), shared)
                cuts.update({key: (holder, path) for key, path in paths.items()})
        if not sharers:
            return
        fresh = self._pack(unit.labels, unit.values, cuts)
        fresh.seconds += unit.seconds
        fresh.content = unit.content
        fresh.holders = {holder for holder, _ in cuts.values()}
        _list_parts(fresh)
        self.units[label] = fresh
        if left := {each for each in sharers if self._shared(fresh, self.units[each])}:
            self._tie({label, *left})

    def _leave_out_the_rest(self) -> None:
        """Pack tensors that show little of a memory nobody else looks at without the rest."""
        for label, unit in list(self.units.items()):
            pickler = unit.bundle.pickler
            lone = pickler.lone_views() if pickler is not None else set[int]()
            if not lone or unit.holders:
                continue
            for name, others in self._known.identities.items():
                if name not in unit.labels:
                    lone -= others
            for other in self.units.values():
                if label in other.holders:
                    lone.clear()
            if lone:
                _list_parts(unit)  # as it is, so that who shares the memory is found later
                fresh = self._pack(unit.labels, unit.values, compact=lone)
                unit.bundle, unit.seconds = fresh.bundle, unit.seconds + fresh.seconds

    def _shared(self, one: Unit, other: Unit) -> set[int]:
        """Ids of objects that are in both."""
        if one is other:
            return set()
        if one.identities is not None and other.identities is not None:
            return set(one.identities.keys() & other.identities.keys())
        large, small = (one, other) if one.identities is None else (other, one)
        if small.identities is None:
            small.identities = small.bundle.identities()
        if not small.identities:
            return set()
        return large.bundle.holds(small.bundle, small.whole, small.identities)

    def _value_of(self, label: str) -> object:
        unit = self.units[label]
        return unit.values[unit.labels.index(label)]

    def _tie(self, labels: Iterable[str]) -> None:
        """Make one unit of several."""
        units = {id(self.units[label]): self.units[label] for label in sorted(labels)}
        each = {
            label: value
            for unit in units.values()
            for label, value in zip(unit.labels, unit.values, strict=True)
        }
        tied = self._pack(tuple(each), tuple(each.values()))
        tied.seconds += sum(unit.seconds for unit in units.values())
        _list_parts(tied)
        for label in each:
            self.units[label] = tied

    # ── order ───────────────────────────────────────────────────────────────────────────

    def _in_order(self) -> list[Unit]:
        if not any(unit.needs for unit in self.units.values()):
            return list(self.units.values())
        while True:
            graph = {
                label: {need for need in unit.needs if need in self.units}
                for label, unit in self.units.items()
            }
            try:
                order = list(TopologicalSorter(graph).static_order())
            except CycleError as error:
                self._tie(set(error.args[1]))
                continue
            unique = dict.fromkeys(id(self.units[label]) for label in order)
            by_id = {id(unit): unit for unit in self.units.values()}
            return [by_id[key] for key in unique]


def _list_parts(unit: Unit) -> None:
    unit.identities = None if unit.bundle.is_large else unit.bundle.identities()


def remember(known: Known, units: Iterable[Unit]) -> None:
    """Keep what later plans want to know of the units just sent."""
    for unit in units:
        if unit.identities is None and not unit.bundle.is_large:
            _list_parts(unit)
        for label in unit.labels:
            known.ages.setdefault(label, len(known.ages))
            known.holders[label] = frozenset((unit.holders | set(unit.labels)) - {label})
            if unit.identities and not is_label(label):
                known.identities[label] = frozenset(unit.identities)
            else:
                known.identities.pop(label, None)
