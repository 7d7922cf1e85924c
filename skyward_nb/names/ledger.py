"""Which of the notebook's names the ranks of a pool have, and which must be sent for a cell.

The rule: a name is sent when its content in the notebook has changed since it was last sent to a rank;
otherwise the rank keeps its own. A cell that assigns a name on a rank makes the rank's value the newer
one until the notebook's content changes again.
"""

from __future__ import annotations

import builtins
import functools
import itertools
import weakref
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from skyward_nb.names.included_modules import roots
from skyward_nb.names.name_cache import NameCache
from skyward_nb.names.plan import ManifestRow, Plan, UnitForRanks, rows_of
from skyward_nb.names.project_modules import ProjectModules
from skyward_nb.names.rank_versions import RankVersions
from skyward_nb.names.unit import ContentMark, Unit
from skyward_nb.names.unit_packer import UnitPacker
from skyward_nb.pickling.definitions import is_label
from skyward_nb.pickling.diagnosis import kind_in_short
from skyward_nb.pickling.payload import pack
from skyward_nb.protocol.commands import SourceFile
from skyward_nb.protocol.events import RankDone, Rejected
from skyward_nb.words.errors import PayloadError

SourceFinder = Callable[[str], SourceFile | None]
_PARCELS_OF_A_RUN = 1 << 20


@dataclass
class _Entry:
    """The state of one label: a name's or a definition's."""

    marks: dict[int, ContentMark] = field(default_factory=dict[int, ContentMark])
    """The mark of each rank."""
    digest: str = ""
    """The digest of the bytes sent last."""
    is_assigned: bool = False
    """Whether ranks have a newer value than the notebook."""
    owners: set[int] = field(default_factory=set[int])
    """Ranks that made that value."""
    held: object = None
    """An object that a mark stands for, held so that its id is not reused."""
    definition: weakref.ref[Any] | None = None
    sent_in: int = 0
    """The number of the run with which it was sent last."""


class Ledger:
    """The contents of each rank under each label (a name's or a definition's).

    `sources` finds the text of a notebook cell by the file name of its code objects; `includes`
    are modules that ranks always get, as `located` finds them.
    """

    def __init__(
        self, world_size: int, sources: SourceFinder, includes: Iterable[str] = ()
    ) -> None:
        self._world_size = world_size
        self._sources = sources
        self._entries: defaultdict[str, _Entry] = defaultdict(_Entry)
        self._known = NameCache()
        self._files: RankVersions[bool] = RankVersions()
        self._imported: RankVersions[bool] = RankVersions()
        self._modules = ProjectModules(roots(includes))
        self._told: set[tuple[object, ...]] = set()
        self.altered: dict[str, set[int]] = {}
        """By name, the ranks that changed its container in place since it was sent."""
        self._parcels: set[int] = set()
        self._unused: defaultdict[int, set[int]] = defaultdict(set)
        self._gone: defaultdict[int, set[str]] = defaultdict(set)
        """Parcels and definitions that a rank does not need, and was not yet told so."""
        self._numbers = itertools.count(1)
        self.parcels_from: int = 0
        """Parcels with lower numbers were sent by a client that is gone."""
        self._earlier: dict[str, _Entry] = {}
        """What ranks had that are gone, whose names a checkpoint may have."""
        self._unmarked: dict[str, tuple[int, ...]] = {}
        """Names of a checkpoint, with ranks, that are theirs until what the notebook has then changes: no run was since."""

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

        `tokens` are all names in the cell's code, `imports` the modules it imports, `definitions` those
        that it needs beside the names, by label, `files` those of its own code. Nothing counts as sent
        before `sent` is called.
        """
        reads = tuple(reads)
        self._mark_resumed(namespace)
        if not reads and not imports and not definitions and not files:
            return Plan(modules=self._modules.changed((), ranks))

        def is_kept(name: str, value: object) -> bool:
            return self._mark_of(ranks, name, _identity(value)) is not None

        packer = UnitPacker(
            namespace, self._known, is_kept, tell, self._modules.version, self._numbers.__next__
        )
        units = packer.plan(reads, definitions)
        sharers = packer.sharers() if units else []
        sending: list[UnitForRanks] = []
        for group in self._alike(ranks, [*units, *sharers]):
            lacking = packer.lacking(sharers, functools.partial(self._mark_of, group))
            everyone = len(group) == self._world_size
            sending += [(unit, None if everyone else group) for unit in lacking]
        rows = rows_of(units, (unit for unit, _ in sending), self._is_assigned)
        for name in packer.skipped:
            rows[name] = ManifestRow(name, "kept on ranks", kind_in_short(namespace[name]))
        assigned = {name for name in packer.absent if self._is_assigned(name)}
        rows.update({name: ManifestRow(name, "kept on ranks") for name in assigned})
        absent = packer.absent - assigned
        # In the notebook, the name means a builtin now; ranks may keep any other absent name.
        meant = {name for name in absent if hasattr(builtins, name)}
        there = {n: {*e.marks, *e.owners} for n, e in self._entries.items() if n in meant}
        removed = sorted(name for name, has in there.items() if not has or has.intersection(ranks))
        rows.update({name: ManifestRow(name, "removed") for name in removed})
        used = {*files, *(file for unit in units for file in unit.bundle.files)}
        unknown = self._files.lacking(dict.fromkeys(sorted(used), True), ranks)
        found = (self._sources(file) for file in unknown)
        modules = packer.modules | imports
        submodules = self._modules.submodules(modules, packer.tokens | tokens)
        lacking_imports = tuple(self._imported.lacking(dict.fromkeys(submodules, True), ranks))
        remarks = packer.remarks()
        return Plan(
            units=tuple(units),
            sending=tuple(sending),
            removed=tuple(removed),
            sources=tuple(source for source in found if source is not None),
            modules=self._modules.changed({*modules, *lacking_imports}, ranks),
            imports=lacking_imports,
            rows=tuple(sorted(rows.values(), key=lambda row: row.name)),
            notes=tuple(text for what, text in remarks.items() if what not in self._told),
            absent=tuple(sorted(absent - meant)),
            told=frozenset(remarks),
        )

    def renew(self, names: Iterable[str], ranks: Iterable[int]) -> None:
        """Have the next plan send these names to these ranks, whatever they have."""
        for entry in filter(None, map(self._entries.get, names)):
            for rank in ranks:
                entry.marks.pop(rank, None)

    def _alike(self, ranks: tuple[int, ...], units: list[Unit]) -> list[tuple[int, ...]]:
        """The ranks, grouped by what they have of these units, and in which parcels."""
        there = [self._marks(unit.labels[0]) for unit in units]
        groups: defaultdict[tuple[tuple[str, int] | None, ...], list[int]] = defaultdict(list)
        for rank in ranks:
            marks = (each.get(rank) for each in there)
            groups[tuple((m.content, m.parcel) if m else None for m in marks)].append(rank)
        return [tuple(group) for group in groups.values()]

    def _marks(self, label: str) -> dict[int, ContentMark]:
        entry = self._entries.get(label)
        return entry.marks if entry else {}

    def _is_assigned(self, label: str) -> bool:
        entry = self._entries.get(label)
        return entry is not None and entry.is_assigned

    def _mark_of(self, ranks: tuple[int, ...], label: str, content: str) -> ContentMark | None:
        """The mark of all of these ranks under a label, if all have this content."""
        there = self._marks(label)
        marks = [mark for rank in ranks if (mark := there.get(rank)) and mark.content == content]
        if not marks or len(marks) < len(ranks):
            return None
        return marks[0] if len({mark.parcel for mark in marks}) == 1 else ContentMark(content)

    def to_let_go(self, ranks: Collection[int]) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """(parcels without a use, definitions that are gone) for these ranks, each of them once."""
        definitions = ((label, entry.definition) for label, entry in self._entries.items())
        dead = [label for label, alive in definitions if alive is not None and alive() is None]
        for label in dead:
            del self._entries[label]
            self._known.forget(label)
        marks = {mark for entry in self._entries.values() for mark in entry.marks.values()}
        unused = self._parcels - {parcel for mark in marks for parcel in mark.parcels}
        self._parcels -= unused
        for rank in range(self._world_size) if unused or dead else ():
            self._unused[rank] |= unused
            self._gone[rank].update(dead)
        parcels = {each for rank in ranks for each in self._unused.pop(rank, ())}
        labels = {each for rank in ranks for each in self._gone.pop(rank, ())}
        return tuple(sorted(parcels)), tuple(sorted(labels))

    def parcels_of(self, names: Iterable[str], plan: Plan) -> dict[str, tuple[int, ...]]:
        """For each name, the parcels that nothing else refers to, `plan` included."""
        own = {name: {p for m in self._marks(name).values() for p in m.parcels} for name in names}
        for unit, _ in plan.sending:
            for name in own.keys() & unit.labels if unit.parcel else ():
                own[name].add(unit.parcel)
        own = {name: parcels for name, parcels in own.items() if parcels}
        if not own:
            return {}
        users: defaultdict[int, set[str]] = defaultdict(set)
        for label, entry in self._entries.items():
            for mark in set(entry.marks.values()):
                for parcel in mark.parcels:
                    users[parcel].add(label)
        for unit, _ in plan.sending:
            for parcel in unit.points_at:
                users[parcel].update(unit.labels)
        alone = {
            name: tuple(sorted(parcel for parcel in parcels if users[parcel] <= {name}))
            for name, parcels in own.items()
        }
        return {name: parcels for name, parcels in alone.items() if parcels}

    # ── during and after a run ──────────────────────────────────────────────────────────

    def sent(self, plan: Plan, ranks: tuple[int, ...], run: int = 0) -> None:
        """Note that the plan is on its way to the ranks, with the run of this number."""
        for unit, some in plan.sending:
            mark, given = unit.mark, range(self._world_size) if some is None else some
            for label, value in zip(unit.labels, unit.values, strict=True):
                entry = self._entries[label]
                entry.definition = weakref.ref(value) if is_label(label) else None
                entry.marks.update(dict.fromkeys(given, mark))
                entry.digest = unit.bundle.digest
                entry.sent_in = run
                self.altered.pop(label, None)
                entry.is_assigned = False
                entry.owners.clear()
            self._parcels |= mark.parcels
        for name in plan.removed:
            entry = self._entries[name]
            for rank in ranks:
                entry.marks.pop(rank, None)
                entry.owners.discard(rank)
            if not (entry.marks or entry.owners):
                del self._entries[name]
        going = {id(unit.whole): unit for unit, _ in plan.sending}
        self._known.remember(going.get(id(unit.whole), unit) for unit in plan.units)
        self._told |= plan.told
        self._files.note({source.filename: True for source in plan.sources}, ranks)
        self._imported.note(dict.fromkeys(plan.imports, True), ranks)
        self._modules.sent(plan.modules, ranks)

    def settle(
        self, done: Mapping[int, RankDone], before: Mapping[str, Any], plan: Plan | None = None
    ) -> None:
        """Note the end of a run: what ranks assigned is newer than what the notebook had `before`."""
        planned = plan.units if plan else ()
        contents = {label: unit.content for unit in planned for label in unit.labels}
        for name in {name for end in done.values() for name in end.assigned}:
            owners = [rank for rank, end in done.items() if name in end.assigned]
            self.found(name, owners)
            marks = self._entries[name].marks
            if name in before:
                known = contents.get(name)
                mark = ContentMark(known) if known else self._new_mark(name, before[name])
                marks.update(dict.fromkeys(owners, mark))
            else:
                there = [rank for rank in owners if rank in marks]
                marks.update({rank: ContentMark(marks[rank].content) for rank in there})
        for rank, end in done.items():
            for name in end.altered:
                if not self._is_assigned(name):
                    self.altered.setdefault(name, set()).add(rank)
            for name in end.dropped:
                if (entry := self._entries.get(name)) is not None:
                    entry.marks.pop(rank, None)
                    entry.owners.discard(rank)
                    entry.is_assigned &= bool(entry.marks or entry.owners)
            if end.rejected is not None and plan is not None:
                self._reject(rank, end.rejected, plan)

    def _reject(self, rank: int, rejected: Rejected, plan: Plan) -> None:
        """Note that a rank bound nothing, since one parcel could not be rebuilt.

        If objects that the parcel refers to are gone, no later parcel may refer to them.
        """
        units = [unit for unit, _ in plan.sending]
        again = {label for unit in units for label in unit.labels}
        lost: set[int] = set()
        for unit in units if rejected.gone else ():
            lost |= unit.points_at if set(unit.labels) & set(rejected.labels) else set()
        for label, entry in self._entries.items():
            if label in again:
                entry.marks.pop(rank, None)
            elif (mark := entry.marks.get(rank)) is not None and mark.parcels & lost:
                entry.marks[rank] = ContentMark(mark.content)
        for given in (self._imported, self._files, self._modules):
            given.forget([rank])

    def bound_here(self, name: str, value: object, ranks: Iterable[int]) -> None:
        """Note that the notebook got `value` under `name` from these ranks: it is not sent back."""
        mark, entry = self._new_mark(name, value), self._entries[name]
        self.altered.pop(name, None)
        entry.is_assigned = True
        entry.marks.update(dict.fromkeys({*ranks, *entry.owners}, mark))

    def sent_among(self, names: Iterable[str], plan: Plan) -> tuple[str, ...]:
        """Those of these names whose newest value came from the notebook, or comes now with the plan."""
        coming = {label for unit, _ in plan.sending for label in unit.labels}
        return tuple(name for name in names if name in coming or not self._is_assigned(name))

    def needed(self) -> set[str]:
        """Digests of the content of all names that ranks have from the notebook."""
        sent = (each for each in self._entries.values() if each.marks and not each.is_assigned)
        return {entry.digest for entry in sent if entry.digest}

    def names_made_on_ranks(self) -> list[str]:
        """Names whose newest value is the ranks' own."""
        return sorted(filter(self._is_assigned, self._entries))

    def only_on_ranks(self) -> list[str]:
        """Names whose newest value, or what was changed in it in place, is the ranks' own: it ends with them."""
        return sorted({*self.names_made_on_ranks(), *self.altered})

    def adopt(self, runs: int) -> None:
        """Begin with ranks to which another client has sent unknown values in so many runs."""
        self.parcels_from = (runs + 1) * _PARCELS_OF_A_RUN
        self._numbers = itertools.count(self.parcels_from)

    def found(self, name: str, ranks: Iterable[int]) -> None:
        """Note a name on these ranks that does not come from the notebook: it stays theirs."""
        entry = self._entries[name]
        entry.is_assigned = True
        entry.owners.update(ranks)
        self.altered.pop(name, None)

    def newer_than(self, run: int) -> tuple[str, ...]:
        """Names that the notebook sent after this run to ranks that are gone: a checkpoint's are older."""
        earlier = self._earlier.items()
        return tuple(sorted(name for name, entry in earlier if entry.sent_in > run))

    def resumed(self, names: Mapping[str, Collection[int]]) -> None:
        """Note the names, with ranks, that these have from a checkpoint, and had made or may have changed.

        Each is theirs until the notebook's content changes: since it was sent to the ranks before, else since the next run.
        """
        for name, ranks in names.items():
            self.found(name, ranks)
            entry, earlier = self._entries[name], self._earlier.get(name)
            if earlier is not None and earlier.marks:
                entry.digest, entry.held = earlier.digest, earlier.held
                entry.sent_in = earlier.sent_in
                there = {rank: mark for rank, mark in earlier.marks.items() if rank in ranks}
                entry.marks = {rank: ContentMark(mark.content) for rank, mark in there.items()}
            else:
                self._unmarked[name] = tuple(ranks)
        self._earlier = {}

    def _mark_resumed(self, namespace: Mapping[str, Any]) -> None:
        """Mark names of a checkpoint with what the notebook has at the first run; questions have no namespace."""
        if self._unmarked and namespace:
            names = self._unmarked.keys() & namespace.keys()
            marks = {name: self._new_mark(name, namespace[name]) for name in names}
            for name, mark in marks.items():
                self._entries[name].marks = dict.fromkeys(self._unmarked[name], mark)
            self._unmarked = {}

    def forget(self, *, resumes: bool = False) -> None:
        """Note that ranks begin anew and have nothing; with `resumes`, they may get names of a checkpoint."""
        names = {name: each for name, each in self._entries.items() if not is_label(name)}
        self._earlier = {**self._earlier, **names} if resumes else {}
        self._known, self._unmarked = NameCache(), {}
        for each in (self.altered, self._entries, self._parcels, self._unused, self._gone):
            each.clear()
        for given in (self._imported, self._files, self._modules):
            given.forget()

    def _new_mark(self, name: str, value: object) -> ContentMark:
        """A mark for this content: its digest, or the object itself if it cannot be packed."""
        try:
            return ContentMark(pack(name, value, to_ranks=True).digest)
        except PayloadError:
            self._entries[name].held = value
            return ContentMark(_identity(value))


def _identity(value: object) -> str:
    """The content of a mark for an object without a digest; the ledger holds the object."""
    return f"object {id(value)}"
