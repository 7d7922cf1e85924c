"""What must travel so that some names of the notebook are whole on a rank, packed, in order.

It follows what code reads, what values are instances of, and which objects names share. Of what
ranks have it only asks.

An object is sent once. A value that is sent points at those of its objects that ranks have
already, in what they keep or in what goes before it: so they stay one object, and stay as the
ranks made them. What ranks keep is never sent again for being shared.
"""

from __future__ import annotations

import copy
import time
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import Any

from skyward_nb.names.name_cache import NameCache
from skyward_nb.names.unit import ContentMark, Unit, shown
from skyward_nb.pickling.definitions import is_label
from skyward_nb.pickling.object_table import Address
from skyward_nb.pickling.payload import Bundle, pack
from skyward_nb.pickling.sizes import looks_big

MarkOf = Callable[[str, str], ContentMark | None]
"""What all ranks of a group have under a label, if it is this content."""


class Planner:
    """Packs what one run needs. Raises `PayloadError` for the first name that cannot travel.

    `skip` says which names ranks have for good, `tell` hears of what may take a moment, `version`
    tells of project modules which content they have now, `new_parcel` gives a number that no
    parcel had before.
    """

    def __init__(
        self,
        namespace: Mapping[str, Any],
        known: NameCache,
        skip: Callable[[str, object], bool],
        tell: Callable[[str], None],
        version: Callable[[Iterable[str]], str],
        new_parcel: Callable[[], int],
    ) -> None:
        self._namespace = namespace
        self._known = known
        self._skip = skip
        self._tell = tell
        self._version = version
        self._new_parcel = new_parcel
        self._units: list[Unit] = []
        self.units: dict[str, Unit] = {}
        self.skipped: set[str] = set()
        self.absent: set[str] = set()
        self.tokens: set[str] = set()
        self.modules: set[str] = set()
        self._apart: dict[str, str] = {}
        """Names that share an object with another which on the ranks nobody can point at."""

    def plan(
        self, reads: Iterable[str], definitions: Mapping[str, object] = MappingProxyType({})
    ) -> list[Unit]:
        """The units that these names and definitions need, each after those it refers to."""
        self._add(reads, definitions)
        self._units = self._in_order()
        for unit in self._units:
            if not unit.whole.is_large and len(self.units) + len(self._known.objects) > 1:
                unit.list_objects()
        return self._units

    def sharers(self) -> list[Unit]:
        """Names that ranks may have, are not read now, and hold an object of what is."""
        found: list[Unit] = []
        ids = {key for unit in self._units for key in unit.objects or {}}
        for name, theirs in self._known.objects.items():
            if name in self.units or name not in self._namespace or ids.isdisjoint(theirs):
                continue
            value = self._namespace[name]
            if not self._skip(name, value):
                # The ids are from then; packed now, it tells what it really holds.
                unit = self._pack((name,), (value,))
                if not unit.whole.is_large:
                    unit.list_objects()
                found.append(unit)
        for unit in self._units:
            found += self._under_other_names(unit)
        return found

    def _under_other_names(self, unit: Unit) -> Iterator[Unit]:
        """The same value under a name that it had before and has no more: it was renamed."""
        if unit.is_definition or unit.whole.pickler is None:
            return
        for name, value_of in self._known.values.items():
            if name in unit.labels or value_of() is not unit.value:
                continue
            now = self._namespace.get(name, unit.value if name in self._namespace else None)
            if now is unit.value:
                continue
            if now is not None:
                there = self.units.get(name) or self._pack((name,), (now,))
                if there.content == unit.content:
                    continue  # two objects, alike: the ranks' is the one that still has the name
            same = Unit((name,), unit.values, unit.whole, unit.content, 0.0, unit.whole)
            same.objects = unit.objects
            yield same

    # ── what is needed ──────────────────────────────────────────────────────────────────

    def _add(self, names: Iterable[str], definitions: Mapping[str, object]) -> None:
        todo: list[tuple[str, object]] = [*definitions.items(), *self._values(sorted(names))]
        while todo:
            label, value = todo.pop()
            if label in self.units:
                continue
            unit = self._packed_before(label, value) or self._pack((label,), (value,))
            self.units[label] = unit
            bundle = unit.whole
            self.tokens |= bundle.tokens
            self.modules |= bundle.modules
            todo += bundle.definitions.items()
            todo += self._values(sorted(bundle.reads))

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

    def _pack(self, labels: tuple[str, ...], values: tuple[object, ...]) -> Unit:
        began = time.perf_counter()
        roots = values if any(map(is_label, labels)) else ()
        value = values[0] if len(values) == 1 else values
        name = shown(labels[0], values[0])
        if any(map(looks_big, values)):
            self._tell(name)
        whole = pack(name, value, to_ranks=True, roots=roots)
        content = self._content(value, whole)
        return Unit(labels, values, whole, content, time.perf_counter() - began, whole)

    def _packed_before(self, label: str, value: object) -> Unit | None:
        """A definition as it was packed for an earlier run, if it cannot have changed since."""
        began = time.perf_counter()
        whole = self._known.packed.find(label, value)
        if whole is None:
            return None
        content = self._content(value, whole)
        # What is constant need not be one object with anything: it has none to share.
        seconds = time.perf_counter() - began
        return Unit((label,), (value,), whole, content, seconds, whole, objects={})

    def _content(self, value: object, whole: Bundle) -> str:
        """What stands for the content of something packed."""
        if issubclass(type(value), types.FunctionType | type) and not whole.definitions:
            # Only a reference into a module: what that is changes with the module's source.
            return whole.digest + self._version(whole.modules)
        return whole.digest

    # ── order ───────────────────────────────────────────────────────────────────────────

    def _in_order(self) -> list[Unit]:
        """Definitions, each after those it refers to, then names, those sent before first."""
        definitions = {label: unit for label, unit in self.units.items() if is_label(label)}
        names = [unit for label, unit in self.units.items() if label not in definitions]
        if len(names) > 1:
            ages = self._known.ages
            places: dict[str, int] = {}
            if any(unit.labels[0] not in ages for unit in names):
                places = {name: place for place, name in enumerate(self._namespace)}
            last = len(ages)
            names.sort(key=lambda u: (ages.get(u.labels[0], last), places.get(u.labels[0], 0)))
        ordered = self._definitions_in_order(definitions)
        return [*ordered, *self._after_what_they_need(names)]

    def _after_what_they_need(self, names: list[Unit]) -> list[Unit]:
        """Names after those that their classes and functions read: rebuilding may call these."""
        if not any(unit.whole.definitions for unit in names):
            return names
        ordered: dict[str, Unit] = {}
        begun: set[str] = set()

        def visit(label: str) -> None:
            unit = self.units.get(label)
            if unit is None or label in begun:
                return
            begun.add(label)
            for need in (*sorted(unit.whole.reads), *unit.whole.definitions):
                visit(need)
            if not is_label(label):
                ordered[label] = unit

        for unit in names:
            visit(unit.labels[0])
        return list(ordered.values())

    def _definitions_in_order(self, units: dict[str, Unit]) -> list[Unit]:
        if len(units) == 1:
            return list(units.values())
        while units:
            graph = {
                label: {need for need in unit.whole.definitions if need not in unit.labels}
                for label, unit in units.items()
            }
            try:
                order = list(TopologicalSorter(graph).static_order())
            except CycleError as error:
                self._tie(units, set(error.args[1]))
                continue
            return list({id(units[label]): units[label] for label in order}.values())
        return []

    def _tie(self, units: dict[str, Unit], labels: Iterable[str]) -> None:
        """Make one unit of several that refer to one another in a circle."""
        parts = {id(units[label]): units[label] for label in sorted(labels)}.values()
        each = {
            label: value
            for unit in parts
            for label, value in zip(unit.labels, unit.values, strict=True)
        }
        tied = self._pack(tuple(each), tuple(each.values()))
        tied.seconds += sum(unit.seconds for unit in parts)
        units.update(dict.fromkeys(each, tied))
        self.units.update(dict.fromkeys(each, tied))

    # ── objects that are on the ranks already, or go before ─────────────────────────────

    def lacking(self, sharers: list[Unit], mark_of: MarkOf) -> list[Unit]:
        """The units that some ranks lack, which have the same of all: packed for these.

        They point at those of their objects that are there, in what these ranks have and in what
        goes before.
        """
        marks = [mark_of(unit.labels[0], unit.content) for unit in self._units]
        if None not in marks:
            return []
        planned = list(zip(self._units, marks, strict=True))
        others = [(unit, mark_of(unit.labels[0], unit.content)) for unit in sharers]
        there = [(unit, mark) for unit, mark in (*planned, *others) if mark is not None]
        lacking: list[Unit] = []
        for unit in (copy.copy(unit) for unit, mark in planned if mark is None):
            addresses: dict[int, Address] = {}
            for other, mark in there:
                self._address(unit, other, mark, addresses)
            self._number(unit, addresses)
            there.append((unit, unit.mark))
            lacking.append(unit)
        return lacking

    def _address(
        self, unit: Unit, other: Unit, mark: ContentMark, addresses: dict[int, Address]
    ) -> None:
        """Note where the objects are that a unit shares with one that is there."""
        lost = False
        for key, number in other.numbers_of(unit).items():
            if key not in addresses:
                home = mark.home(number)
                if home is None:
                    lost = True
                else:
                    addresses[key] = home
        if lost and not unit.is_definition:
            self._apart[unit.labels[0]] = other.shown

    def _number(self, unit: Unit, addresses: dict[int, Address]) -> None:
        """Pack what a unit sends, and note where its objects will be."""
        began = time.perf_counter()
        compact = self._lone_views(unit, addresses)
        if addresses or compact:
            unit.bundle = pack(
                unit.shown,
                unit.value,
                to_ranks=True,
                roots=unit.values if unit.is_definition else (),
                cuts=addresses or None,
                compact=compact,
            )
            unit.points_at = {parcel for parcel, _ in addresses.values()}
            unit.seconds += time.perf_counter() - began
        if unit.objects is not None and not unit.objects:
            return  # nothing that anybody could share
        unit.parcel = self._new_parcel()
        if unit.bundle is unit.whole:
            return
        sent = {} if unit.bundle.is_large else unit.bundle.objects()
        unit.homes = {}
        for key, (number, _) in (unit.objects or {}).items():
            if key in addresses:
                unit.homes[number] = addresses[key]
            elif key in sent:
                unit.homes[number] = (unit.parcel, sent[key][0])

    def _lone_views(self, unit: Unit, addresses: Collection[int]) -> set[int]:
        """Memory that one tensor of the unit shows little of, and nobody else looks at."""
        pickler = unit.whole.pickler
        lone = pickler.lone_views() if pickler is not None else set[int]()
        for other in self.units.values() if lone else ():
            if other is not unit:
                lone -= (other.objects or {}).keys()
        return lone - set(addresses)

    # ── what is worth a word ────────────────────────────────────────────────────────────

    def remarks(self) -> dict[tuple[object, ...], str]:
        """Words on values that are not quite what the notebook has, by what each is about."""
        found: dict[tuple[object, ...], str] = {}
        for name, other in sorted(self._apart.items()):
            found["apart", name, other] = (
                f"{name} shares an object with {other}, which on the ranks is apart from the "
                f"notebook's: there, {name} has a copy"
            )
        for unit in self._units:
            for label, value in unit.whole.definitions.items():
                kind = getattr(value, "__qualname__", "class")
                now = self._namespace.get(kind)
                if now is value or not all(issubclass(type(each), type) for each in (value, now)):
                    continue
                for name in unit.labels:
                    if not is_label(name):
                        found[name, label, id(now)] = (
                            f"{name} is of the {kind} that was defined before; make it again to "
                            "have the new one"
                        )
        return found
