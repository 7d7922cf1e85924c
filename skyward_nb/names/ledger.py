"""What the ranks of a pool have of the notebook's names, and what a cell needs sent.

The rule: a name is sent when its notebook-side content changed since it was last sent to a
rank; otherwise that rank keeps its own. A cell that assigns a name on a rank makes the rank's
the newer one until the notebook's content changes again.
"""

from __future__ import annotations

import builtins
import errno
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from skyward_nb.names.included_modules import roots
from skyward_nb.names.planner import ContentMark, NameCache, Planner, Unit, remember
from skyward_nb.names.project_modules import ProjectModules
from skyward_nb.names.rank_versions import RankVersions
from skyward_nb.pickling.definitions import is_label
from skyward_nb.pickling.diagnosis import kind_in_short
from skyward_nb.pickling.payload import pack
from skyward_nb.protocol.commands import ModuleFile, Parcel, SourceFile
from skyward_nb.protocol.events import RankDone
from skyward_nb.store.blobs import CorruptValue
from skyward_nb.store.content_store import ContentStore
from skyward_nb.words.errors import PayloadError, spell_size

Status = Literal["sent", "unchanged", "kept on ranks", "removed"]
_STRONGEST: tuple[Status, ...] = ("sent", "kept on ranks", "unchanged", "removed")
SourceFinder = Callable[[str], SourceFile | None]


@dataclass(frozen=True)
class ManifestRow:
    """One name of a run's manifest: bytes of payload, and seconds that packing it took.

    `size` is 0 when nothing was packed.
    """

    name: str
    status: Status
    type_name: str = ""
    size: int = 0
    seconds: float = 0.0


Sending = tuple[Unit, tuple[int, ...] | None]
"""A unit and the ranks that get it; None for all."""


@dataclass(frozen=True)
class Plan:
    """What a run sends, and the manifest that tells of it."""

    units: tuple[Unit, ...] = ()
    sending: tuple[Sending, ...] = ()
    removed: tuple[str, ...] = ()
    sources: tuple[SourceFile, ...] = ()
    modules: tuple[ModuleFile, ...] = ()
    imports: tuple[str, ...] = ()
    rows: tuple[ManifestRow, ...] = ()
    notes: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    told: frozenset[tuple[object, ...]] = frozenset()

    @property
    def sent_bytes(self) -> int:
        """Payload bytes of the names sent."""
        return sum(row.size for row in self.rows if row.status == "sent")

    def largest(self) -> str:
        """The names that make up most of what is sent, with their sizes."""
        rows = sorted((row for row in self.rows if row.status == "sent"), key=lambda row: -row.size)
        return ", ".join(f"{row.name} {spell_size(row.size)}" for row in rows[:3])

    def stow(
        self,
        store_of: Callable[[tuple[int, ...] | None], ContentStore],
        tick: Callable[[], None] = lambda: None,
    ) -> tuple[Parcel, ...]:
        """The parcels, large ones by way of the store of the ranks that get them (`None`: all).

        `tick` is called now and then while those are written. Raises `PayloadError` where there is
        no room, with nothing left of what was not there before.
        """
        parcels: list[Parcel] = []
        new: list[tuple[ContentStore, str]] = []
        for unit, ranks in self.sending:
            store, bundle = store_of(ranks), unit.bundle
            try:
                if bundle.is_stowed and store.put(bundle.digest, bundle.parts, tick):
                    new.append((store, bundle.digest))
            except OSError as error:
                for each, digest in new:
                    each.drop([digest])
                raise no_room(unit.shown, type(unit.values[0]).__name__, error) from error
            except CorruptValue as error:
                raise changed(unit.shown, type(unit.values[0]).__name__, error) from error
            parcels.append(Parcel(unit.labels, bundle.stowed(store), ranks, unit.parcel))
        return tuple(parcels)


def no_room(name: str, type_name: str, error: OSError) -> PayloadError:
    """The error for what cannot be written to the ranks' store."""
    advice = "Free memory, or have the cell load the data on the ranks."
    lack = "does not fit on the ranks' machine"
    if error.errno != errno.ENOSPC:
        advice, lack = "Nothing was sent.", "cannot be written to the ranks' store"
    return PayloadError(name, name, type_name, error.strerror or str(error), advice, lack)


def changed(name: str, type_name: str, error: CorruptValue) -> PayloadError:
    """The error for what came to the ranks' store as something else."""
    advice = (
        "It changed while it was packed (does a thread still write to it?). Nothing was sent to "
        "ranks; the next run sends it again."
    )
    return PayloadError(name, name, type_name, str(error), advice, "did not arrive as it was")


_PARCELS_OF_A_RUN = 1 << 20


class Ledger:
    """Per rank and label (a name's or a definition's), what the rank has.

    `sources` finds the text of a notebook cell by the file name its code objects carry; `includes`
    are modules that ranks get in any case, as `located` finds them.
    """

    def __init__(
        self, world_size: int, sources: SourceFinder, includes: Iterable[str] = ()
    ) -> None:
        self._world_size = world_size
        self._sources = sources
        self._marks: dict[str, dict[int, ContentMark]] = {}
        self._known = NameCache()
        self._blobs: dict[str, str] = {}
        self._assigned: set[str] = set()
        self._owners: dict[str, set[int]] = {}
        self._files: RankVersions[bool] = RankVersions()
        self._held: dict[str, object] = {}
        self._imported: RankVersions[bool] = RankVersions()
        self._modules = ProjectModules(roots(includes))
        self._told: set[tuple[object, ...]] = set()
        self._parcels: set[int] = set()
        self._pending: dict[int, set[int | str]] = {}
        self._alive: dict[str, weakref.ref[Any]] = {}
        self._numbers = itertools.count(1)
        self.parcels_from: int = 0
        """Parcels with lower numbers were sent by a client that is gone."""

    # ── before a run ────────────────────────────────────────────────────────────────────

    def plan(
        self,
        reads: Iterable[str],
        namespace: Mapping[str, Any],
        ranks: tuple[int, ...],
        *,
        tokens: frozenset[str] = frozenset(),
        imports: frozenset[str] = frozenset(),
        definitions: Mapping[str, object] = MappingProxyType({}),
        files: Iterable[str] = (),
        tell: Callable[[str], None] = lambda _: None,
    ) -> Plan:
        """Pack what `reads` needs of `namespace`, transitively; raises `PayloadError`.

        `tokens` are all names that the cell's code mentions, `imports` the modules it imports,
        `definitions` those it has beside the names, by label, `files` those its own code is in.
        Nothing is marked as sent before `sent` says so.
        """
        reads = tuple(reads)
        if not reads and not imports and not definitions and not files:
            return Plan(modules=self._modules.changed((), ranks))

        def is_kept(name: str, value: object) -> bool:
            return _Target(self, ranks).mark(name, _identity(value)) is not None

        planner = Planner(namespace, self._known, is_kept, tell, self._modules.version)
        units = planner.plan(reads, definitions)
        sharers = planner.sharers() if units else []
        sending: list[Sending] = []
        for group in self._alike(ranks, [*units, *sharers]):
            shared = planner.share(sharers, _Target(self, group))
            everyone = len(group) == self._world_size
            sending += [(u, None if everyone else group) for u in shared if u.mark is None]
        rows = self._tabulated(units, sending)
        for name in planner.skipped:
            rows[name] = ManifestRow(name, "kept on ranks", kind_in_short(namespace[name]))
        for name in planner.absent & self._assigned:
            rows[name] = ManifestRow(name, "kept on ranks")
        # A builtin is what the name means in the notebook now; any other name the ranks may keep.
        gone = {n for n in planner.absent & self._marks.keys() if hasattr(builtins, n)}
        removed = tuple(sorted(gone - self._assigned))
        rows.update({name: ManifestRow(name, "removed") for name in removed})
        nowhere = planner.absent - self._assigned - gone
        used = {*files, *(file for unit in units for file in unit.bundle.files)}
        unknown = self._files.lacking(dict.fromkeys(sorted(used), True), ranks)
        found = (self._sources(file) for file in unknown)
        modules = planner.modules | imports
        submodules = self._modules.submodules(modules, planner.tokens | tokens)
        lacking = tuple(self._imported.lacking(dict.fromkeys(submodules, True), ranks))
        told: set[tuple[object, ...]] = set()
        notes = tuple(self._tell(units, planner, namespace, told))
        return Plan(
            units=tuple(units),
            sending=tuple(sending),
            removed=removed,
            sources=tuple(source for source in found if source is not None),
            modules=self._modules.changed({*modules, *lacking}, ranks),
            imports=lacking,
            rows=tuple(sorted(rows.values(), key=lambda row: row.name)),
            notes=notes,
            absent=tuple(sorted(n for n in nowhere if not hasattr(builtins, n))),
            told=frozenset(told),
        )

    def _alike(self, ranks: tuple[int, ...], units: list[Unit]) -> list[tuple[int, ...]]:
        """The ranks in groups that have the same of all units, in the same parcels."""
        groups: dict[tuple[tuple[str, int] | None, ...], list[int]] = {}
        for rank in ranks:
            marks = (self._marks.get(unit.labels[0], {}).get(rank) for unit in units)
            key = tuple((mark.content, mark.parcel) if mark else None for mark in marks)
            groups.setdefault(key, []).append(rank)
        return [tuple(group) for group in groups.values()]

    def _tabulated(
        self, units: Iterable[Unit], sending: Iterable[Sending]
    ) -> dict[str, ManifestRow]:
        """A row of the manifest for each name and definition."""
        rows: dict[str, ManifestRow] = {}
        going: dict[str, Unit] = {}
        for unit, _ in sending:
            going.update(dict.fromkeys(unit.labels, unit))
        for unit in units:
            for label, value in zip(unit.labels, unit.values, strict=True):
                sent = going.get(label)
                status: Status = "sent" if sent is not None else "unchanged"
                if sent is None and label in self._assigned:
                    status = "kept on ranks"
                name = value.__qualname__ if is_label(label) else label  # type: ignore[attr-defined]
                size = (sent or unit).bundle.size
                row = ManifestRow(name, status, kind_in_short(value), size, (sent or unit).seconds)
                rows[name] = _merged(rows[name], row) if name in rows else row
        return rows

    def to_let_go(self, ranks: Iterable[int]) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """(parcels that nothing belongs to any more, definitions that are gone), told once a rank."""
        dead = [label for label, alive in self._alive.items() if alive() is None]
        for label in dead:
            del self._alive[label]
            self._marks.pop(label, None)
            self._blobs.pop(label, None)
            self._known.packed.forget(label)
        live = {parcel for each in self._each_mark() for parcel in each.parcels}
        gone = self._parcels - live
        self._parcels &= live
        parcels: set[int] = set()
        labels: set[str] = set()
        for rank in range(self._world_size):
            self._pending.setdefault(rank, set()).update(gone, dead)
        for rank in ranks:
            for each in self._pending.pop(rank, ()):
                (labels if isinstance(each, str) else parcels).add(each)  # type: ignore[arg-type]
        return tuple(sorted(parcels)), tuple(sorted(labels))

    def parcels_of(self, names: Iterable[str], plan: Plan) -> dict[str, tuple[int, ...]]:
        """Of each name the parcels that nothing else, `plan` included, points at."""
        found: dict[str, tuple[int, ...]] = {}
        for name in names:
            own = {parcel for mark in self._marks.get(name, {}).values() for parcel in mark.parcels}
            own |= {unit.parcel for unit, _ in plan.sending if name in unit.labels and unit.parcel}
            others = (
                m for label, marks in self._marks.items() if label != name for m in marks.values()
            )
            own -= {parcel for mark in others for parcel in mark.parcels} if own else set()
            own -= {
                p for unit, _ in plan.sending if name not in unit.labels for p in unit.points_at
            }
            if own:
                found[name] = tuple(sorted(own))
        return found

    def _each_mark(self) -> Iterator[ContentMark]:
        for marks in self._marks.values():
            yield from marks.values()

    def _tell(
        self,
        units: Iterable[Unit],
        planner: Planner,
        namespace: Mapping[str, Any],
        told: set[tuple[object, ...]],
    ) -> Iterator[str]:
        """A word, once, on values that are not quite what the notebook has; on what, is `told`."""

        def once(*what: object) -> bool:
            told.add(what)
            return what not in self._told

        for name, other in sorted(planner.apart.items()):
            if once("apart", name, other):
                yield (
                    f"{name} shares an object with {other}, which on the ranks is apart from the "
                    f"notebook's: there, {name} has a copy"
                )
        for unit in units:
            for label, value in unit.whole.definitions.items():
                now = namespace.get(getattr(value, "__qualname__", ""))
                if now is value or not all(issubclass(type(each), type) for each in (value, now)):
                    continue
                for name in unit.labels:
                    if not is_label(name) and once(name, label, id(now)):
                        yield (
                            f"{name} is of the {getattr(value, '__qualname__', 'class')} that was defined before; make "
                            "it again to have the new one"
                        )

    # ── during and after it ─────────────────────────────────────────────────────────────

    def sent(self, plan: Plan, ranks: tuple[int, ...]) -> None:
        """The plan is on its way to the ranks."""
        for unit, some in plan.sending:
            mark = ContentMark(unit.content, unit.parcel, unit.homes)
            for label, value in zip(unit.labels, unit.values, strict=True):
                if is_label(label):
                    self._alive[label] = weakref.ref(value)
                for rank in range(self._world_size) if some is None else some:
                    self._marks.setdefault(label, {})[rank] = mark
                self._assigned.discard(label)
                self._owners.pop(label, None)
                self._blobs[label] = unit.bundle.digest
            self._parcels |= mark.parcels
        for name in plan.removed:
            self._marks.pop(name, None)
        going = {id(unit.whole): unit for unit, _ in plan.sending}
        remember(self._known, [going.get(id(unit.whole), unit) for unit in plan.units])
        self._told |= plan.told
        self._files.note({source.filename: True for source in plan.sources}, ranks)
        self._imported.note(dict.fromkeys(plan.imports, True), ranks)
        self._modules.sent(plan.modules, ranks)

    def settle(
        self, done: Mapping[int, RankDone], namespace: Mapping[str, Any], plan: Plan | None = None
    ) -> None:
        """A run is over: what ranks assigned is newer than the notebook's present content."""
        contents = {
            label: unit.content for unit in (plan.units if plan else ()) for label in unit.labels
        }
        for name in {name for end in done.values() for name in end.assigned}:
            self._assigned.add(name)
            owners = {rank for rank, end in done.items() if name in end.assigned}
            self._owners.setdefault(name, set()).update(owners)
            if name not in namespace:
                for rank in owners & self._marks.get(name, {}).keys():
                    self._marks[name][rank] = ContentMark(self._marks[name][rank].content)
                continue
            mark = (
                ContentMark(contents[name])
                if name in contents
                else self._mark(name, namespace[name])
            )
            for rank, end in done.items():
                if name in end.assigned:
                    self._marks.setdefault(name, {})[rank] = mark
        for rank, end in done.items():
            for name in end.dropped:
                self._marks.get(name, {}).pop(rank, None)
                self._owners.get(name, set()).discard(rank)
            if end.rejected is not None and plan is not None:
                self._rejected(rank, end.rejected.labels, end.rejected.gone, plan)

    def _rejected(
        self,
        rank: int,
        labels: tuple[str, ...],
        gone: bool,
        plan: Plan,
    ) -> None:
        """A rank bound nothing of what was sent, since one parcel could not be rebuilt.

        `gone`: since what it points at is not there, so that nobody may point at it any more.
        """
        again = {label for unit, _ in plan.sending for label in unit.labels}
        lost: set[int] = set()
        for unit, _ in plan.sending if gone else ():
            lost |= unit.points_at if set(unit.labels) & set(labels) else set()
        for label, marks in self._marks.items():
            if label in again:
                marks.pop(rank, None)
            elif rank in marks and marks[rank].parcels & lost:
                marks[rank] = ContentMark(marks[rank].content)
        for given in (self._imported, self._files, self._modules):
            given.forget([rank])

    def bound_here(self, name: str, value: object, ranks: Iterable[int]) -> None:
        """The notebook got `value` under `name` from these ranks' own: all ranks' own stays."""
        mark = self._mark(name, value)
        self._assigned.add(name)
        for rank in {*ranks, *self._owners.get(name, ())}:
            self._marks.setdefault(name, {})[rank] = mark

    def needed(self) -> set[str]:
        """Digests of what is some rank's name's content."""
        held = (label for label, marks in self._marks.items() if marks)
        return {
            self._blobs[label] for label in held if label in self._blobs.keys() - self._assigned
        }

    def names_made_on_ranks(self) -> list[str]:
        """Names whose newest value is the ranks' own."""
        return sorted(self._assigned)

    def adopt(self, runs: int) -> None:
        """Ranks have what another client sent them in so many runs, of which nothing is known."""
        self.parcels_from = (runs + 1) * _PARCELS_OF_A_RUN
        self._numbers = itertools.count(self.parcels_from)

    def found(self, name: str, ranks: Iterable[int]) -> None:
        """These ranks have a name that is not known to have come from the notebook."""
        self._assigned.add(name)
        self._owners.setdefault(name, set()).update(ranks)

    def forget(self) -> None:
        """A new generation: the ranks have nothing."""
        self._marks.clear()
        self._known = NameCache()
        self._parcels.clear()
        self._pending.clear()
        self._alive.clear()
        self._blobs.clear()
        self._assigned.clear()
        self._owners.clear()
        self._held.clear()
        for given in (self._imported, self._files, self._modules):
            given.forget()

    def _mark(self, name: str, value: object) -> ContentMark:
        """What stands for this content: its digest, or the object itself where it has none."""
        try:
            return ContentMark(pack(name, value, to_ranks=True).digest)
        except PayloadError:
            self._held[name] = value
            return ContentMark(_identity(value))


@dataclass(frozen=True)
class _Target:
    """The ranks that a run is for, as the planner asks about them."""

    ledger: Ledger
    ranks: tuple[int, ...]

    def mark(self, label: str, content: str) -> ContentMark | None:
        marks = self._marks(label, content)
        if not marks or len(marks) < len(self.ranks):
            return None
        return marks[0] if len({mark.parcel for mark in marks}) == 1 else ContentMark(content)

    def _marks(self, label: str, content: str) -> list[ContentMark]:
        there = self.ledger._marks.get(label, {})
        marks = [there[rank] for rank in self.ranks if rank in there]
        return [mark for mark in marks if mark.content == content]

    def new_parcel(self) -> int:
        return next(self.ledger._numbers)


def results_in_store(done: Mapping[int, RankDone]) -> dict[int, set[str]]:
    """By rank, digests of what it sent home by way of its store."""
    found: dict[int, set[str]] = {}
    for rank, end in done.items():
        raised = end.failure.value if end.failure else None
        sent = [end.value, raised, end.profile, *end.pulled.values()]
        digests = {each.digest for each in sent if each is not None and each.data is None}
        if digests:
            found[rank] = digests
    return found


def _merged(first: ManifestRow, second: ManifestRow) -> ManifestRow:
    """One row for a name and the definition it is bound to."""
    status: Status = next(s for s in _STRONGEST if s in (first.status, second.status))
    size, seconds = first.size + second.size, first.seconds + second.seconds
    return ManifestRow(first.name, status, first.type_name, size, seconds)


def _identity(value: object) -> str:
    """A mark for an object without a digest; the ledger holds it, so that its id stays its own."""
    return f"object {id(value)}"
