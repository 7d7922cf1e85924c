"""What the ranks of a pool have of the notebook's names, and what a cell needs sent.

The rule: a name is sent when its notebook-side content changed since it was last sent to a
rank; otherwise that rank keeps its own. A cell that assigns a name on a rank makes the rank's
the newer one until the notebook's content changes again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from skyward_nb.wire.blobs import BlobStore
from skyward_nb.wire.payload import Bundle, pack
from skyward_nb.words.errors import PayloadError
from skyward_nb.words.messages import NameValue, Packed, RankDone, SourceFile

Status = Literal["sent", "unchanged", "kept on ranks"]


@dataclass(frozen=True)
class Row:
    """One name of a run's manifest; `size` in bytes of payload, 0 when nothing was packed."""

    name: str
    status: Status
    type_name: str = ""
    size: int = 0


@dataclass
class Plan:
    """What a run sends: names with their values, sources for tracebacks, and the manifest."""

    names: list[NameValue] = field(default_factory=list)
    sources: list[SourceFile] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    @property
    def sent_bytes(self) -> int:
        """Payload bytes of the names sent."""
        return sum(row.size for row in self.rows if row.status == "sent")


class Ledger:
    """Per rank and name, the notebook-side content the rank's own value is newer than.

    `sources` finds the text of a notebook cell by the file name its code objects carry.
    """

    def __init__(self, world_size: int, stores: Iterable[BlobStore], sources: SourceFinder) -> None:
        self._world_size = world_size
        self._stores = tuple(stores)
        self._sources = sources
        self._known: dict[str, dict[int, str]] = {}
        self._assigned: set[str] = set()
        self._files: set[str] = set()
        self._held: dict[str, object] = {}
        self._worn = False

    def plan(
        self, reads: Iterable[str], namespace: Mapping[str, Any], ranks: tuple[int, ...]
    ) -> Plan:
        """Pack what `reads` needs of `namespace`, transitively; raises `PayloadError`.

        Nothing is marked as sent before `sent` says so.
        """
        plan = Plan()
        todo = sorted(reads)
        seen: set[str] = set()
        files: set[str] = set()
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            if name not in namespace:
                if name in self._assigned:
                    plan.rows.append(Row(name, "kept on ranks"))
                continue
            value = namespace[name]
            known = self._known.get(name, {})
            if ranks and all(known.get(rank) == _identity(value) for rank in ranks):
                plan.rows.append(Row(name, "kept on ranks", type(value).__name__))
                continue
            bundle = pack(name, value)
            files |= bundle.files
            todo += sorted(bundle.reads - seen)
            self._plan_one(plan, name, value, bundle, ranks)
        for file in sorted(files - self._files):
            if (source := self._sources(file)) is not None:
                plan.sources.append(source)
        plan.rows.sort(key=lambda row: row.name)
        return plan

    def _plan_one(
        self, plan: Plan, name: str, value: object, bundle: Bundle, ranks: tuple[int, ...]
    ) -> None:
        known = self._known.get(name, {})
        lacking = tuple(rank for rank in ranks if known.get(rank) != bundle.digest)
        kind = type(value).__name__
        if not lacking:
            status: Status = "kept on ranks" if name in self._assigned else "unchanged"
            plan.rows.append(Row(name, status, kind, bundle.size))
            return
        packed = self._stow(name, kind, bundle)
        everyone = len(lacking) == self._world_size
        plan.names.append(NameValue(name, packed, None if everyone else lacking))
        plan.rows.append(Row(name, "sent", kind, bundle.size))

    def _stow(self, name: str, kind: str, bundle: Bundle) -> Packed:
        try:
            first, *_ = [bundle.stow(store) for store in self._stores]
        except OSError as error:
            where = self._stores[0].folder.parent
            reason = f"{bundle.size:,} bytes do not fit in {where}: {error.strerror or error}"
            advice = "Free memory there, or have the cell load the data on the ranks."
            raise PayloadError(name, name, kind, reason, advice) from error
        return first

    def sent(self, plan: Plan, ranks: tuple[int, ...]) -> None:
        """The plan's names are on their way to the ranks."""
        for item in plan.names:
            for rank in range(self._world_size) if item.ranks is None else item.ranks:
                self._set(item.name, rank, item.value.digest)
            self._assigned.discard(item.name)
        if len(ranks) == self._world_size:
            self._files |= {source.filename for source in plan.sources}

    def settle(self, done: Mapping[int, RankDone], namespace: Mapping[str, Any]) -> None:
        """A run is over: what ranks assigned is newer than the notebook's present content."""
        for name in {name for end in done.values() for name in end.assigned}:
            self._assigned.add(name)
            mark = self._mark(name, namespace[name]) if name in namespace else None
            for rank, end in done.items():
                if mark is not None and name in end.assigned:
                    self._set(name, rank, mark)
        for rank, end in done.items():
            for name in end.dropped:
                self._known.get(name, {}).pop(rank, None)
                self._worn = True

    def bound_here(self, name: str, value: object) -> None:
        """The notebook got `value` under `name` from ranks that have their own: theirs stays."""
        mark = self._mark(name, value)
        for rank in range(self._world_size):
            self._set(name, rank, mark)

    def clean(self, done: Mapping[int, RankDone]) -> None:
        """Drop what lies in the stores and is no rank's name's content, such as a run's results."""
        if not (self._worn or any(map(_in_store, done.values()))):
            return
        self._worn = False
        kept = {mark for marks in self._known.values() for mark in marks.values()}
        for store in self._stores:
            store.keep(kept)

    def names_made_on_ranks(self) -> list[str]:
        """Names whose newest value is the ranks' own."""
        return sorted(self._assigned)

    def forget(self) -> None:
        """A new generation: the ranks have nothing."""
        self._known.clear()
        self._assigned.clear()
        self._files.clear()
        self._held.clear()
        self._worn = True

    def _mark(self, name: str, value: object) -> str:
        """What stands for this content: its digest, or the object itself where it has none."""
        try:
            return pack(name, value).digest
        except PayloadError:
            self._held[name] = value
            return _identity(value)

    def _set(self, name: str, rank: int, mark: str) -> None:
        marks = self._known.setdefault(name, {})
        self._worn = self._worn or (rank in marks and marks[rank] != mark)
        marks[rank] = mark


def _in_store(end: RankDone) -> bool:
    """Whether something a rank sent home lies in its store."""
    sent = [end.value, end.failure.value if end.failure else None, *end.pulled.values()]
    return any(each is not None and each.data is None for each in sent)


SourceFinder = Callable[[str], SourceFile | None]


def _identity(value: object) -> str:
    """A mark for an object without a digest; the ledger holds it, so that its id stays its own."""
    return f"object {id(value)}"
