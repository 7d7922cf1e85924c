"""Working folders on their way to machines elsewhere, and results of scripts on their way back.

Each machine is asked what it lacks; what one of them lacks goes through the stores of all, as large values do.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import stat
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from skyward_nb.names.plan import ManifestRow
from skyward_nb.pool.brought_files import BroughtFiles, noting, reaching
from skyward_nb.pool.closing import Closing
from skyward_nb.pool.context import PoolContext
from skyward_nb.protocol.events import Event
from skyward_nb.providers.provider_protocol import MachineEnded
from skyward_nb.store.blobs import digest_of
from skyward_nb.store.remote_store import RemoteStore
from skyward_nb.store.value_messages import (
    FolderBrought,
    FolderFound,
    FolderPack,
    FolderQuery,
    FolderSearch,
    FolderUpdate,
    FolderUpdated,
    MissingContents,
    ValuePacked,
)
from skyward_nb.system.concurrency import run_concurrently
from skyward_nb.words.errors import spell_size
from skyward_nb.words.folder_entry import FilePart, FolderEntry, FolderError, PackedContents
from skyward_nb.workdir.result_files import FoundResult, ResultFolder, results
from skyward_nb.workdir.scan import FolderScan, scan
from skyward_nb.workdir.working_folder import WorkingFolder

_GROUP = 64 << 20
"""Bytes of contents that are one value."""
_TRIES = 3
Tick = Callable[[], None]


class FolderTransfer:
    """Brings working folders of scripts to the machines of a pool, and results from there."""

    def __init__(self, context: PoolContext, closing: Closing) -> None:
        self._context = context
        self._closing = closing
        self.last: WorkingFolder | None = None
        """The folder of the script that ran last."""
        self._brought: dict[Path, str] = {}
        """Contents of files as they were brought last."""
        self._came_from: dict[Path, int] = {}
        """The nodes that they came from."""

    # ── there ───────────────────────────────────────────────────────────────────────────

    def send(
        self,
        folder: WorkingFolder,
        ranks: Sequence[int],
        watch: Callable[[Event | None], None],
    ) -> tuple[ManifestRow, tuple[str, ...]]:
        """Have a folder on the machines of these ranks as it is here; a row of the manifest, and notes.

        Raises `OptionError` for a folder that cannot be read, `FolderError` where it cannot be written there.
        """
        began, stores = time.monotonic(), self._context.stores.elsewhere(ranks)
        found = scan(
            folder.root,
            takes_all=folder.takes_all,
            only=folder.only,
            tick=lambda: watch(None),
        )
        with self._closing.reaching():
            try:
                size, changes = self._bring_up_to_date(folder, found, stores, ranks, watch)
            except OSError as error:
                why = error.strerror or str(error)
                raise FolderError(
                    str(folder.root),
                    why,
                    f"the folder {folder.root} could not be sent to all machines: {why}. The script did not begin",
                ) from error
        notes = tuple(
            f"{name} changed while it was sent: ranks have it as it was when it was read last"
            for name in found.changed
        )
        files = sum(1 for entry in found.entries.values() if entry.content)
        row = ManifestRow(
            folder.only or f"{folder.root.name or '/'}/",
            "sent" if changes else "unchanged",
            f"{files:,} file{'s' * (files != 1)}",
            size,
            time.monotonic() - began,
        )
        return row, notes

    def _bring_up_to_date(
        self,
        folder: WorkingFolder,
        found: FolderScan,
        stores: Mapping[int, RemoteStore],
        ranks: Sequence[int],
        watch: Callable[[Event | None], None],
    ) -> tuple[int, int]:
        """How many bytes were sent, and how many entries were changed there."""
        lacking, behind, changes = set[str](), list[RemoteStore](), list[int]()

        def ask(store: RemoteStore, tick: Tick) -> None:
            query = FolderQuery(folder.key, tuple(found.entries.values()))
            lacks = store.ask_folder(query, MissingContents, tick)
            lacking.update(lacks.contents)
            behind.extend([store] * (not lacks.is_current))

        _on_each(stores, ask, lambda: watch(None))
        if not behind:
            return 0, 0
        size = sum(
            {e.content: e.size for e in found.entries.values() if e.content in lacking}.values()
        )
        there, values = self._context.stores.of(ranks), list[tuple[str, tuple[FilePart, ...]]]()
        text = f"sending {spell_size(size)} of {folder.root.name}/"
        try:
            with self._context.stores.telling(text, size, watch) as tick:
                for parts, data in found.contents(lacking, _GROUP, tick):
                    values.append((digest_of(data), parts))
                    there.put(values[-1][0], data, tick)
                packed = tuple(PackedContents(each, found.packed(parts)) for each, parts in values)

                def update(store: RemoteStore, tick: Tick) -> None:
                    ask = FolderUpdate(folder.key, tuple(found.entries.values()), packed)
                    changes.append(store.ask_folder(ask, FolderUpdated, tick).changes)

                _on_each(stores, update, tick)
        finally:
            there.drop([digest for digest, _ in values])
        return size, max(changes, default=0)

    # ── back ────────────────────────────────────────────────────────────────────────────

    def bring(
        self,
        folder: WorkingFolder,
        ranks: Sequence[int],
        watch: Callable[[Event | None], None],
    ) -> BroughtFiles:
        """Bring what the patterns of a folder match from the machines of these ranks.

        Raises `FolderError` where it cannot be written here, or none of them is reached.
        """
        brought = BroughtFiles()
        here = ResultFolder(folder.root)
        stores = self._context.stores.elsewhere(ranks)
        with self._closing.reaching():
            try:
                for _ in range(_TRIES):
                    # One that was not reached is not waited for again.
                    left = {n: each for n, each in stores.items() if n not in brought.unreached}
                    wanted = self._wanted(folder, left, brought, here, lambda: watch(None))
                    brought.changing = []
                    for node, files in itertools.groupby(wanted, key=lambda each: each.node):
                        with noting(brought, node, left[node]):
                            self._receive(folder.key, left[node], list(files), here, brought, watch)
                    if not brought.changing:
                        break
                self._note_alike(folder.key, stores, here, brought, lambda: watch(None))
            except OSError as error:
                why = error.strerror or str(error)
                raise FolderError(
                    str(folder.root),
                    why,
                    f"fetch={','.join(folder.fetch)}: {why}; `%sky fetch` tries again while the pool is up",
                ) from error
        return brought

    def _note_alike(
        self,
        key: str,
        stores: Mapping[int, RemoteStore],
        here: ResultFolder,
        brought: BroughtFiles,
        tick: Tick,
    ) -> None:
        """Have machines know that results of theirs are here: they are not sent over newer ones, unless they change."""
        alike = list[FolderEntry]()
        for each in brought.alike:
            with contextlib.suppress(OSError):  # it is somewhere else by now
                mode = stat.S_IMODE((here.root / each.name).stat().st_mode) & 0o777
                alike.append(structs.replace(each, mode=mode))

        def note(node: int, store: RemoteStore, tick: Tick) -> None:
            entries = brought.there[node].entries if node in brought.there else ()
            has = {(each.path, each.content) for each in entries}
            entries = tuple(each for each in alike if (each.path, each.content) in has)
            if entries:
                # They came; at worst they are sent again.
                with contextlib.suppress(OSError, MachineEnded):
                    store.ask_folder(FolderBrought(key, entries), FolderUpdated, tick)

        works = [(lambda tick, n=node, s=store: note(n, s, tick)) for node, store in stores.items()]
        run_concurrently(works, tick)

    def _wanted(
        self,
        folder: WorkingFolder,
        stores: Mapping[int, RemoteStore],
        brought: BroughtFiles,
        here: ResultFolder,
        tick: Tick,
    ) -> list[FoundResult]:
        """The files to bring; folders and links are made at once."""
        there = _search(folder, stores, brought, tick)
        brought.found = sum(len(each.entries) for each in there.values())
        brought.refused = []
        # A file of a machine that is not reached keeps its name here, whatever others have of that name.
        of_others = {
            place.relative_to(folder.root).as_posix(): self._brought[place]
            for place, node in self._came_from.items()
            if node in brought.unreached and place.is_relative_to(folder.root)
        }
        every = results(
            {node: _made(each) for node, each in there.items()}, folder.fetch, of_others
        )
        sent = {entry.name: entry for each in there.values() for entry in each.sent}
        wanted: list[FoundResult] = []
        for each in every:
            tick()
            place = folder.root / each.path
            if here.has(each):
                self._brought[place] = each.entry.content
                brought.alike += [each.entry] * (
                    each.path == each.entry.name and bool(each.entry.content)
                )
                continue
            to_have, last = each, self._brought.get(place)
            if here.is_edited(each.path, sent.get(each.path), last):
                to_have = replace(each, path=f"{each.path}.fetched")
                brought.edited[to_have.path] = each.path
                if here.has(to_have):
                    continue
            try:
                here.place(to_have)
                if each.entry.content:
                    wanted.append(to_have)
                    continue
                here.make(to_have)
            except PermissionError as error:
                if error.errno:  # the file system's own
                    raise
                brought.refused.append(error.strerror or str(error))
            else:
                brought.paths += [to_have.path] * bool(each.entry.target)
        return wanted

    def _receive(
        self,
        key: str,
        store: RemoteStore,
        files: list[FoundResult],
        here: ResultFolder,
        brought: BroughtFiles,
        watch: Callable[[Event | None], None],
    ) -> None:
        size = sum(each.entry.size for each in files)
        with (
            self._context.stores.telling(
                f"bringing {spell_size(size)} of files", size, watch
            ) as tick,
            contextlib.closing(_pieces(key, store, files, tick)) as pieces,
        ):
            for number, parts in itertools.groupby(pieces, key=lambda each: each[0]):
                each = files[number]
                with here.receiving(each) as coming:
                    for _, piece in parts:
                        coming.write(piece)
                if coming.digest == each.entry.content:
                    brought.paths.append(each.path)
                    brought.size += each.entry.size
                    self._brought[here.root / each.path] = each.entry.content
                    self._came_from[here.root / each.path] = each.node
                    brought.alike += [each.entry] * (each.path == each.entry.name)
                else:
                    brought.changing.append(each.path)


def _search(
    folder: WorkingFolder, stores: Mapping[int, RemoteStore], brought: BroughtFiles, tick: Tick
) -> dict[int, FolderFound]:
    """What each machine has of what is asked for; raises OSError where none is reached."""
    brought.there = there = dict[int, FolderFound]()

    def ask(node: int, store: RemoteStore, tick: Tick) -> None:
        query = FolderSearch(folder.key, folder.fetch)
        with noting(brought, node, store), reaching():
            there[node] = store.ask_folder(query, FolderFound, tick)

    works = [(lambda tick, n=node, s=store: ask(n, s, tick)) for node, store in stores.items()]
    run_concurrently(works, tick)
    if brought.unreached and not (there or brought.paths):
        raise OSError(errno.EHOSTUNREACH, "; ".join(brought.unreached.values()))
    return there


def _made(found: FolderFound) -> list[FolderEntry]:
    """What is not as it was sent."""
    sent = {entry.path: (entry.content, entry.target) for entry in found.sent}
    return [each for each in found.entries if sent.get(each.path) != (each.content, each.target)]


def _on_each(
    stores: Mapping[int, RemoteStore], work: Callable[[RemoteStore, Tick], None], tick: Tick
) -> None:
    run_concurrently([(lambda tick, s=store: work(s, tick)) for store in stores.values()], tick)


def _pieces(
    key: str, store: RemoteStore, files: Sequence[FoundResult], tick: Tick
) -> Generator[tuple[int, memoryview]]:
    """The bytes of files in a row, each piece with the number of its file; raises OSError."""
    for group in _groups(files):
        parts = tuple(part for _, part in group)
        with reaching():
            packed = store.ask_folder(FolderPack(key, parts), ValuePacked, tick)
        try:
            with reaching():
                store.fetch([packed.digest], tick)
            data, start = store.map(packed.digest), 0
            for (number, _), size in zip(group, packed.sizes, strict=True):
                yield number, data[start : start + size]
                start += size
        finally:
            store.drop([packed.digest])


def _groups(files: Iterable[FoundResult]) -> Iterator[list[tuple[int, FilePart]]]:
    """Parts of files, with the numbers of these, in groups of at most so many bytes."""
    group, room = list[tuple[int, FilePart]](), _GROUP
    for number, each in enumerate(files):
        start, size = 0, each.entry.size
        while True:
            stop = min(size, start + room)
            group.append((number, FilePart(each.entry.path, start, stop)))
            room -= stop - start
            start = stop
            if room <= 0:
                yield group
                group, room = [], _GROUP
            if start >= size:
                break
    if group:
        yield group
