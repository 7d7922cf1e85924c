"""Files that a script has made on machines elsewhere: which are brought here, and how they are written.

A machine may be anybody's: nothing is written but what was asked for by a pattern, and in the working folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import tempfile
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path, PurePosixPath
from types import MappingProxyType

import xxhash

from skyward_nb.words.folder_entry import FolderEntry
from skyward_nb.workdir.patterns import PathPatterns


@dataclass(frozen=True)
class FoundResult:
    """What a machine has, and the path that it gets here; `node` is the first of the machine's."""

    node: int
    entry: FolderEntry
    path: str


def results(
    found: Mapping[int, Iterable[FolderEntry]],
    patterns: Iterable[str],
    of_others: Mapping[str, str] = MappingProxyType({}),
) -> tuple[FoundResult, ...]:
    """What to bring of what machines have, by their first nodes. Pure.

    Where machines have different files of one path, the first one's has it here, and that of node 3 is
    `name.node3.suffix`, or `name.node3.2.suffix` where a machine has a file of that name. Files here that are
    `of_others`, with their contents, keep their paths: those machines are not asked.
    """
    match = PathPatterns(patterns)
    asked = {
        node: [each for each in entries if each.is_inside and match(each.name)]
        for node, entries in sorted(found.items())
    }
    taken = {each.name for entries in asked.values() for each in entries}
    chosen: dict[str, FolderEntry] = {}
    every: list[FoundResult] = []
    for node, entries in asked.items():
        for entry in entries:
            path = entry.name
            first = chosen.setdefault(path, entry)
            if first is not entry and (first.content, first.target) == (
                entry.content,
                entry.target,
            ):
                continue
            if first is not entry or of_others.get(path, entry.content) != entry.content:
                path = _free(path, node, taken)
            every.append(FoundResult(node, entry, path))
    return tuple(every)


def _free(path: str, node: int, taken: set[str]) -> str:
    """The path of a node's own file, which no other result has; it is taken then."""
    pure = PurePosixPath(path)
    numbers = itertools.chain([""], (f".{number}" for number in itertools.count(2)))
    paths = (
        os.fspath(pure.with_name(f"{pure.stem}.node{node}{number}{pure.suffix}"))
        for number in numbers
    )
    free = next(each for each in paths if each not in taken)
    taken.add(free)
    return free


class ResultFolder:
    """The working folder here, as results are written to it. Raises OSError, with words for a person."""

    def __init__(self, root: Path) -> None:
        self.root: Path = root
        self._real = os.path.realpath(root)

    def has(self, found: FoundResult) -> bool:
        """Whether it is here already."""
        path, entry = self.root / found.path, found.entry
        try:
            if entry.target:
                return os.fsencode(os.readlink(path)) == entry.target  # noqa: PTH115
            if not entry.content:
                return path.is_dir()
            is_like = path.is_file() and path.stat().st_size == entry.size
        except OSError:
            return False
        return is_like and _digest(path) == entry.content

    def is_edited(self, path: str, sent: FolderEntry | None, brought: str | None) -> bool:
        """Whether a file here is neither as it was `sent`, nor has the content that was `brought` last."""
        here = self.root / path
        if sent is None or here.is_symlink() or not here.is_file():
            return False
        return _digest(here) not in (sent.content, brought)

    def make(self, found: FoundResult) -> None:
        """Make a folder, or a link to a place in the folder; a link to another place is refused."""
        path, entry = self.place(found), found.entry
        if not entry.target:
            path.mkdir(exist_ok=True)
            return
        target = os.fsdecode(entry.target)
        there = os.path.normpath(os.path.join(os.path.realpath(path.parent), target))  # noqa: PTH118
        parts = PurePosixPath(target).parts
        climbs = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
        if os.path.isabs(target) or ".." in parts[climbs:] or not self._is_inside(there):  # noqa: PTH117
            raise PermissionError(None, f"{found.path} is a link to {target}, out of the folder")
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".part-") as beside:
            link = Path(beside, "link")
            link.symlink_to(target)
            link.replace(path)

    @contextlib.contextmanager
    def receiving(self, found: FoundResult) -> Generator[ReceivedFile]:
        """A file that comes; it takes its place at the end, if it is complete by then."""
        path, entry = self.place(found), found.entry
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
        try:
            with open(handle, "wb", buffering=0) as file:  # noqa: PTH123 - it is open already
                coming = ReceivedFile(file)
                yield coming
                os.fchmod(handle, entry.mode & 0o777)
                os.utime(handle, ns=(entry.modified, entry.modified))
            if coming.digest == entry.content:
                Path(name).replace(path)
        finally:
            Path(name).unlink(missing_ok=True)

    def _is_inside(self, path: str) -> bool:
        return path == self._real or path.startswith(f"{self._real}{os.sep}")

    def place(self, found: FoundResult) -> Path:
        """Its path, in a folder that is there; PermissionError where a link here leads out of the working folder."""
        path = self.root / found.path
        real = os.path.realpath(path.parent)
        if not self._is_inside(real):
            raise PermissionError(
                None,
                f"{found.path} would be written to {real}, as a link here leads out of the folder",
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


class ReceivedFile:
    """A file that comes in pieces."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self._hasher = xxhash.xxh3_128()

    def write(self, piece: memoryview) -> None:
        """These bytes come next."""
        self._hasher.update(piece)
        while piece:
            piece = piece[self._file.write(piece) or 0 :]

    @property
    def digest(self) -> str:
        """The digest of what has come."""
        return self._hasher.hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()
