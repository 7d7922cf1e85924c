"""A planner of what must travel so that names of the notebook are complete on a rank: packed, in order.

It follows the names that code reads, the classes of values, and the objects that names share. The
ledger tells it what ranks have.

An object is sent once. A value that is sent refers to those of its objects that ranks have already, or
that go before it: so they stay one object, as the ranks made it. A value that ranks keep is never sent
again for being shared.
"""

from __future__ import annotations

import copy
import functools
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
from skyward_nb.words.errors import PayloadError

MarkOf = Callable[[str, str], ContentMark | None]
"""The mark of all ranks of a group under a label, if all have this content."""

_COMPILED = type(functools.lru_cache(len)).__name__, "PjitFunction", "custom_jvp", "custom_vjp"
"""Kinds of functions that a decorator makes, which go by their names in modules, too."""


class UnitPacker:
    """Packs what one run needs. Raises `PayloadError` for the first name that cannot travel.

    `skip` says which names ranks keep, `tell` gets the names of values that may take a moment,
    `version` gives the present content of project modules, `new_parcel` an unused number.
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
        """Names that share an object with another name whose object on the ranks has no address."""
        self._stays: dict[str, frozenset[int]] = {}
        """Objects, by id, of names that ranks have and that cannot travel any more."""

    def plan(
        self, reads: Iterable[str], definitions: Mapping[str, object] = MappingProxyType({})
    ) -> list[Unit]:
        """The units that these names and definitions need, each after those that it refers to."""
        self._add(reads, definitions)
        self._units = self._in_order()
        for unit in self._units:
            if not unit.whole.is_large and len(self.units) + len(self._known.objects) > 1:
                unit.list_objects()
        return self._units

    def sharers(self) -> list[Unit]:
        """Names that ranks may have, that are not read now, and share an object with a planned unit."""
        found: list[Unit] = []
        ids = {key for unit in self._units for key in unit.objects or {}}
        for name, theirs in self._known.objects.items():
            if name in self.units or name not in self._namespace or ids.isdisjoint(theirs):
                continue
            value = self._namespace[name]
            if not self._skip(name, value):
                # The ids are of an earlier run; packing finds its present objects.
                try:
                    unit = self._pack((name,), (value,))
                except PayloadError:
                    # It cannot travel as it is now, which is of no concern here: nobody reads it.
                    self._stays[name] = frozenset(theirs)
                    continue
                if not unit.whole.is_large:
                    unit.list_objects()
                found.append(unit)
        for unit in self._units:
            found += self._under_other_names(unit)
        return found

    def _under_other_names(self, unit: Unit) -> Iterator[Unit]:
        """The same value under a former name: it was renamed."""
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
                    continue  # two equal objects: that of the ranks still has the name
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
        """A value as it was packed for an earlier run, if it cannot have changed since."""
        began = time.perf_counter()
        whole = self._known.find(label, value)
        if whole is None:
            return None
        content = self._content(value, whole)
        # A constant need not stay one object with another: it has no objects to share.
        seconds = time.perf_counter() - began
        return Unit((label,), (value,), whole, content, seconds, whole, objects={})

    def _content(self, value: object, whole: Bundle) -> str:
        """A word that identifies packed content."""
        kind = type(value)
        is_function = issubclass(kind, types.FunctionType | type) or kind.__name__ in _COMPILED
        if is_function and not whole.definitions:
            # Only a reference into a module: its content changes with the module's source.
            return whole.digest + self._version(whole.modules)
        return whole.digest

    # ── order ───────────────────────────────────────────────────────────────────────────

    def _in_order(self) -> list[Unit]:
        """Definitions, each after those that it refers to, then names, those of earlier runs first."""
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
        """Names, each after those that its classes and functions read: rebuilding it may call these."""
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
        """Make one unit of several that form a circle."""
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

    # ── objects that ranks have, or that go before ──────────────────────────────────────

    def lacking(self, sharers: list[Unit], mark_of: MarkOf) -> list[Unit]:
        """The units that a group of ranks lacks, packed for this group.

        They refer to those of their objects that these ranks have, or that go before.
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
            for name, theirs in self._stays.items():
                if not unit.is_definition and not theirs.isdisjoint(unit.objects or ()):
                    self._apart[unit.labels[0]] = name
            self._number(unit, addresses)
            there.append((unit, unit.mark))
            lacking.append(unit)
        return lacking

    def _address(
        self, unit: Unit, other: Unit, mark: ContentMark, addresses: dict[int, Address]
    ) -> None:
        """Note the addresses of the objects that a unit shares with another one on the ranks."""
        lost = False
        for key, number in other.numbers_of(unit).items():
            if key not in addresses:
                address = mark.address_of(number)
                if address is None:
                    lost = True
                else:
                    addresses[key] = address
        if lost and not unit.is_definition:
            self._apart[unit.labels[0]] = other.shown

    def _number(self, unit: Unit, addresses: dict[int, Address]) -> None:
        """Pack the part of a unit that is sent, and note the addresses of its objects."""
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
            return  # it has no objects to share
        unit.parcel = self._new_parcel()
        if unit.bundle is unit.whole:
            return
        sent = {} if unit.bundle.is_large else unit.bundle.objects()
        unit.addresses = {}
        for key, (number, _) in (unit.objects or {}).items():
            if key in addresses:
                unit.addresses[number] = addresses[key]
            elif key in sent:
                unit.addresses[number] = (unit.parcel, sent[key][0])

    def _lone_views(self, unit: Unit, addresses: Collection[int]) -> set[int]:
        """Memory of which one tensor of the unit is a small view, and no other unit has a view."""
        pickler = unit.whole.pickler
        lone = pickler.lone_views() if pickler is not None else set[int]()
        for other in self.units.values() if lone else ():
            if other is not unit:
                lone -= (other.objects or {}).keys()
        return lone - set(addresses)

    # ── remarks ─────────────────────────────────────────────────────────────────────────

    def remarks(self) -> dict[tuple[object, ...], str]:
        """Remarks on values that differ from the notebook's, by subject."""
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
