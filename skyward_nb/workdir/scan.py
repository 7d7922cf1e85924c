"""A working folder as it is now: its entries, and the contents of its files."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

import xxhash
from msgspec.structs import replace

from skyward_nb.words.errors import OptionError, spell_size
from skyward_nb.words.folder_entry import FilePart, FolderEntry
from skyward_nb.workdir.ignoring import IgnoreRules

MOST_BYTES = 1_000_000_000
"""Bytes of a folder above which it is sent only if that is asked for."""
MOST_ENTRIES = 100_000
_TRIES = 3
_STEP = 16 << 20
_TO_BE_READ = "?"


@dataclass
class FolderScan:
    """The entries of the folder `root` by their paths, folders before what is in them.

    `changed` are files that changed each time they were read.
    """

    root: Path
    entries: dict[bytes, FolderEntry] = field(default_factory=dict[bytes, FolderEntry])
    changed: list[str] = field(default_factory=list[str])

    def contents(
        self, wanted: Collection[str], most: int, tick: Callable[[], None]
    ) -> Iterator[tuple[tuple[FilePart, ...], list[bytes]]]:
        """The files with these contents, each content once, and their bytes: in groups of about `most` bytes.

        A file of more comes in parts, one after another. One that is another file by now goes as it is now: in the end
        its entry here tells that.
        """
        left, group, data, size = set(wanted), list[FilePart](), list[bytes](), 0
        for entry in list(self.entries.values()):
            if entry.content not in left:
                continue
            tick()
            if entry.size > most:
                for part, piece in self._parts(entry, most):
                    yield (part,), [piece]
                if (sent := self.entries.get(entry.path)) is not None:
                    left.discard(sent.content)
                continue
            now, parts = self._read_again(entry)
            if now is None:
                continue
            # Another file may have what was asked for, if this one has changed.
            left.discard(now.content)
            group.append(FilePart(now.path, 0, now.size))
            data += parts
            size += now.size
            if size >= most:
                yield tuple(group), data
                group, data, size = [], [], 0
        if group:
            yield tuple(group), data

    def packed(self, parts: Iterable[FilePart]) -> tuple[tuple[str, int], ...]:
        """The digests of the contents that parts are of, once all are read, and the sizes of the parts."""
        return tuple((self.entries[each.path].content, each.stop - each.start) for each in parts)

    def _parts(self, entry: FolderEntry, most: int) -> Iterator[tuple[FilePart, bytes]]:
        """A large file in parts of so many bytes, as it is while it is read: its entry takes the place of this one."""
        hasher, start = xxhash.xxh3_128(), 0
        if (opened := _opened(self.root, entry)) is None:
            del self.entries[entry.path]
            return
        with opened as file:
            info = os.fstat(file.fileno())
            while (piece := _piece(file, most)) or not start:
                hasher.update(piece)
                yield FilePart(entry.path, start, start + len(piece)), piece
                start += len(piece)
                if not piece:
                    break  # it is empty by now
        now = replace(entry, size=start, modified=info.st_mtime_ns, content=hasher.hexdigest())
        self.entries[entry.path] = now
        if now.content != entry.content:
            self.changed.append(entry.name)

    def _read_again(self, entry: FolderEntry) -> tuple[FolderEntry | None, list[bytes]]:
        """A file as it is now, whose entry takes the place of this one; None for one that is gone."""
        before = entry
        now, data = _read(self.root, entry, keep=True)
        for _ in range(_TRIES - 1):
            if now is None or now.content == before.content:
                break
            before = now
            now, data = _read(self.root, entry, keep=True)
        if now is None:
            del self.entries[entry.path]
            return None, []
        self.entries[entry.path] = now
        if now.content != before.content:
            self.changed.append(entry.name)
        return now, data


def scan(
    root: Path,
    *,
    takes_all: bool = False,
    only: str = "",
    tick: Callable[[], None] = lambda: None,
) -> FolderScan:
    """Read a folder, but for what is ignored.

    With `only`, that file of it is all there is. Raises `OptionError` for one that is too large, unless it
    `takes_all`, and for what cannot be read.
    """
    found = FolderScan(root)
    one = [FolderEntry(os.fsencode(only), content=_TO_BE_READ)] if only else []
    for walked in one or sorted(
        _walk(root, takes_all=takes_all), key=lambda each: each.path.split(b"/")
    ):
        tick()
        entry = _read(root, walked)[0] if walked.content else walked
        if entry is not None:
            found.entries[entry.path] = entry
    return found


def _walk(root: Path, *, takes_all: bool) -> list[FolderEntry]:
    """Its entries; those of files are to be read."""
    sizes: Counter[str] = Counter()
    todo = [("", IgnoreRules.above(root).within("", os.fspath(root)))]
    found: list[FolderEntry] = []
    while todo:
        inner, rules = todo.pop()
        for each in _listed(root, inner):
            info, is_folder = each.stat(follow_symlinks=False), each.is_dir(follow_symlinks=False)
            if rules.leave_out(each.name, each.path, is_folder=is_folder):
                continue
            name = f"{inner}{each.name}"
            path, mode = os.fsencode(name), stat.S_IMODE(info.st_mode) & 0o777
            if is_folder:
                found.append(FolderEntry(path, mode))
                todo.append((f"{name}/", rules.within(each.name, each.path)))
            elif each.is_symlink():
                found.append(FolderEntry(path, target=_target(root, each.path)))
            elif stat.S_ISREG(info.st_mode):  # nothing else has a content
                found.append(FolderEntry(path, mode, content=_TO_BE_READ))
                top, slash, _ = name.partition("/")
                sizes[f"{top}{slash}"] += info.st_size
        if len(found) > MOST_ENTRIES and not takes_all:
            raise _too_large(root, f"more than {MOST_ENTRIES:,} files and folders")
    if (total := sizes.total()) > MOST_BYTES and not takes_all:
        largest = ", ".join(f"{name} {spell_size(size)}" for name, size in sizes.most_common(3))
        raise _too_large(root, f"{spell_size(total)} ({largest})")
    return found


def _too_large(root: Path, has: str) -> OptionError:
    return OptionError(
        "folder",
        f"{root} has {has}, and more than {spell_size(MOST_BYTES)}, or {MOST_ENTRIES:,} files, is not sent to other "
        "machines unasked. Name what ranks do not need in a file .skyignore there (its lines are those of .gitignore), "
        "or have the script read its data where it runs; folder=all sends all of it, folder=none nothing",
    )


def _listed(root: Path, inner: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(root / inner) as entries:
            return list(entries)
    except FileNotFoundError:
        if not inner:
            raise OptionError("folder", f"there is no folder {root}") from None
        return []  # it went meanwhile
    except OSError as error:
        raise _unreadable(f"{root / inner}", error) from None


def _target(root: Path, path: str) -> bytes:
    """Where a link leads; one that leads to a place in the folder does so from within it."""
    target = os.readlink(path)  # noqa: PTH115 - a Path would change its text
    if os.path.isabs(target) and Path(target).is_relative_to(root):  # noqa: PTH117
        target = os.path.relpath(target, os.path.dirname(path))  # noqa: PTH120
    return os.fsencode(target)


def _read(
    root: Path, entry: FolderEntry, *, keep: bool = False
) -> tuple[FolderEntry | None, list[bytes]]:
    """A file's entry as it is now, and its bytes if they are to be kept; None for one that is gone."""
    kept, size = list[bytes](), 0
    if (opened := _opened(root, entry)) is None:
        return None, kept
    with opened as file:
        info = os.fstat(file.fileno())
        hasher = xxhash.xxh3_128()
        while part := _piece(file, max(_STEP, info.st_size if keep else 0)):
            hasher.update(part)
            size += len(part)
            kept += [part] * keep
    mode, digest = stat.S_IMODE(info.st_mode) & 0o777, hasher.hexdigest()
    now = replace(entry, mode=mode, size=size, modified=info.st_mtime_ns, content=digest)
    return now, kept


def _opened(root: Path, entry: FolderEntry) -> FileIO | None:
    """A file, open; None for one that is gone."""
    path = os.path.join(root, entry.name)  # noqa: PTH118 - for each file
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error) from None
    file = FileIO(handle)
    file.name = path
    return file


def _piece(file: FileIO, size: int) -> bytes:
    try:
        return file.read(size)
    except OSError as error:
        raise _unreadable(f"{file.name}", error) from None


def _unreadable(path: str, error: OSError) -> OptionError:
    return OptionError(
        "folder",
        f"{path} cannot be read ({error.strerror or error}), so it cannot be sent to other machines: if ranks do not "
        "need it, name it in a file .skyignore, or leave it out of file_mounts",
    )
