"""What must travel so that some names of the notebook are whole on a rank, packed, in order.

It follows what code reads, what values are instances of, and which objects names share. Of what
ranks have it only asks.

An object is sent once. A value that is sent points at those of its objects that ranks have
already, in what they keep or in what goes before it: so they stay one object, and stay as the
ranks made them. What ranks keep is never sent again for being shared.
"""

from __future__ import annotations

import time
import types
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import Any, Protocol

from skyward_nb.names.pack_cache import PackCache
from skyward_nb.pickling.definitions import is_label
from skyward_nb.pickling.object_table import Address
from skyward_nb.pickling.payload import Bundle, pack
from skyward_nb.pickling.sizes import looks_big

_FEW = 50_000


@dataclass(frozen=True)
class ContentMark:
    """What a rank has under a label: the notebook-side content that its own is newer than.

    `content` is a digest, or what stands for an object without one. Its objects, as numbered
    when all of it is packed, are in `parcel` under the same numbers, or where `homes` says;
    without a parcel nobody knows which of the rank's objects they are.
    """

    content: str
    parcel: int = 0
    homes: Mapping[int, Address] | None = None

    def home(self, number: int) -> Address | None:
        """Where an object is on the ranks."""
        if self.homes is None:
            return (self.parcel, number) if self.parcel else None
        return self.homes.get(number)

    @property
    def parcels(self) -> set[int]:
        """Parcels that must be kept for it."""
        held = {parcel for parcel, _ in (self.homes or {}).values()}
        return held | ({self.parcel} if self.parcel else set())


@dataclass
class Unit:
    """What travels as one: a name's value, a definition, or definitions that form a circle.

    `whole` is all of it, packed, and `content` its digest; `bundle` is what is sent. `objects`
    are those that others could share, with their numbers in the whole, by id; None for one of a
    great many. `mark` is what all ranks have of it, if they have this content.
    """

    labels: tuple[str, ...]
    values: tuple[object, ...]
    whole: Bundle
    content: str
    seconds: float
    bundle: Bundle
    objects: dict[int, tuple[int, object]] | None = None
    mark: ContentMark | None = None
    parcel: int = 0
    homes: dict[int, Address] | None = None
    points_at: set[int] = field(default_factory=set)

    @property
    def value(self) -> object:
        """What was packed."""
        return self.values[0] if len(self.values) == 1 else self.values

    @property
    def is_definition(self) -> bool:
        """Whether it is a definition, or several."""
        return is_label(self.labels[0])

    @property
    def shown(self) -> str:
        """What a person calls it."""
        value = self.values[0]
        return value.__qualname__ if self.is_definition else self.labels[0]  # type: ignore[attr-defined]

    def there_as(self, mark: ContentMark | None) -> Unit:
        """The same unit, of which ranks have this."""
        unit = object.__new__(Unit)
        unit.__dict__.update(self.__dict__)
        unit.mark = mark
        return unit

    def list_objects(self) -> dict[int, tuple[int, object]]:
        """Its objects, listed once; those of a great many only when there is no other way."""
        if self.objects is None:
            self.objects = self.whole.objects()
        return self.objects

    def numbers_of(self, other: Unit) -> dict[int, int]:
        """The numbers here, by id, of the objects of another unit that are in this one, too."""
        small, large = (self, other) if self.objects is not None else (other, self)
        if large.objects is None and (small.objects is None or len(small.objects) > _FEW):
            small.list_objects()
            large.list_objects()
        if self.objects is not None and other.objects is not None:
            both = self.objects.keys() & other.objects.keys()
            return {key: self.objects[key][0] for key in both}
        theirs = [each for _, each in small.list_objects().values()]
        if not theirs:
            return {}
        try:
            held = large.whole.numbers_of(small.whole, small.value, theirs)
        except Exception:  # noqa: BLE001 - the one's pickler cannot take the other's objects
            return {}
        return held if large is self else {key: small.list_objects()[key][0] for key in held}


@dataclass
class NameCache:
    """What earlier plans found of each name: ids of its objects, and its value, held weakly.

    Ids outlive their objects, so they are hints. `ages` orders labels by when they were sent.
    """

    objects: dict[str, frozenset[int]] = field(default_factory=dict)
    values: dict[str, Callable[[], object]] = field(default_factory=dict)
    ages: dict[str, int] = field(default_factory=dict)
    packed: PackCache = field(default_factory=PackCache)


class RankContents(Protocol):
    """What the planner asks about ranks that have the same of all that is planned."""

    def mark(self, label: str, content: str) -> ContentMark | None:
        """What all of them have under a label, if it is this content."""
        ...

    def new_parcel(self) -> int:
        """A number no parcel had before."""
        ...


class Planner:
    """Packs what one run needs. Raises `PayloadError` for the first name that cannot travel.

    `skip` says which names ranks have for good, `tell` hears of what may take a moment, `version`
    tells of project modules which content they have now.
    """

    def __init__(
        self,
        namespace: Mapping[str, Any],
        known: NameCache,
        skip: Callable[[str, object], bool],
        tell: Callable[[str], None],
        version: Callable[[Iterable[str]], str],
    ) -> None:
        self._namespace = namespace
        self._known = known
        self._skip = skip
        self._tell = tell
        self._version = version
        self._units: list[Unit] = []
        self.units: dict[str, Unit] = {}
        self.skipped: set[str] = set()
        self.absent: set[str] = set()
        self.tokens: set[str] = set()
        self.modules: set[str] = set()
        self.apart: dict[str, str] = {}
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
        name = values[0].__qualname__ if roots else labels[0]  # type: ignore[attr-defined]
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

    def share(self, sharers: list[Unit], ranks: RankContents) -> list[Unit]:
        """The units as they are for some ranks, which have the same of all.

        With what these have, and, where they lack a unit, packed to point at those of its objects
        that are there.
        """
        units = [unit.there_as(ranks.mark(unit.labels[0], unit.content)) for unit in self._units]
        if all(unit.mark is not None for unit in units):
            return units
        there = [unit for unit in units if unit.mark is not None]
        for unit in sharers:
            mark = ranks.mark(unit.labels[0], unit.content)
            if mark is not None:
                there.append(unit.there_as(mark))
        for unit in units:
            if unit.mark is not None:
                continue
            addresses: dict[int, Address] = {}
            for other in there:
                self._address(unit, other, addresses)
            self._number(unit, addresses, ranks)
            there.append(unit)
        return units

    def _address(self, unit: Unit, other: Unit, addresses: dict[int, Address]) -> None:
        """Note where the objects are that a unit shares with one that is there."""
        mark = other.mark or ContentMark(other.content, other.parcel, other.homes)
        lost = False
        for key, number in other.numbers_of(unit).items():
            if key not in addresses:
                home = mark.home(number)
                if home is None:
                    lost = True
                else:
                    addresses[key] = home
        if lost and not unit.is_definition:
            self.apart[unit.labels[0]] = other.shown

    def _number(self, unit: Unit, addresses: dict[int, Address], ranks: RankContents) -> None:
        """Pack what a unit sends, and note where its objects will be."""
        began = time.perf_counter()
        compact = self._lone_views(unit, addresses)
        roots = unit.values if unit.is_definition else ()
        if addresses or compact:
            unit.bundle = pack(
                unit.shown,
                unit.value,
                to_ranks=True,
                roots=roots,
                cuts=addresses or None,
                compact=compact,
            )
            unit.points_at = {parcel for parcel, _ in addresses.values()}
            unit.seconds += time.perf_counter() - began
        if unit.objects is not None and not unit.objects:
            return  # nothing that anybody could share
        unit.parcel = ranks.new_parcel()
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


def _nothing() -> object:
    """No value: one that cannot be held weakly is not recognized under another name."""
    return _nothing


def remember(known: NameCache, units: Iterable[Unit]) -> None:
    """Keep what later plans want to know of the units just planned."""
    for unit in units:
        for label, value in zip(unit.labels, unit.values, strict=True):
            known.ages.setdefault(label, len(known.ages))
            if unit.whole.pickler is not None and len(unit.labels) == 1:
                known.packed.keep(label, value, unit.whole)
            if is_label(label):
                continue
            if unit.mark is not None and label in known.values and known.values[label]() is value:
                continue
            try:
                known.values[label] = weakref.ref(value)
            except TypeError:
                known.values[label] = _nothing
            if unit.whole.is_large:
                continue
            if objects := unit.list_objects():
                known.objects[label] = frozenset(objects)
            else:
                known.objects.pop(label, None)
