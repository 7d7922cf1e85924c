"""The copy of a working folder on a machine elsewhere: what it lacks, brought up to date, searched and read.

Beside the copy lies a record of what was sent, and a lock: machines may share a home. New files are complete
before the first of the old ones is removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from skyward_nb.store.blobs import Buffer, digest_of
from skyward_nb.words.decoding import msgpack_decoder
from skyward_nb.words.folder_entry import FilePart, FolderEntry, is_folder_key
from skyward_nb.workdir.changes import Entries, FolderChanges, by_path, changes
from skyward_nb.workdir.patterns import PathPatterns

_STEP = 16 << 20
_RECORD: msgspec.msgpack.Decoder[tuple[FolderEntry, ...]] = msgpack_decoder(tuple[FolderEntry, ...])
Contents = Callable[[str], Sequence[Buffer] | None]
"""The parts of the bytes with a digest that were sent, if they were."""


class MachineFolder:
    """The copy `key` below `root`. Raises OSError, with words for a person."""

    def __init__(self, root: Path, key: str) -> None:
        if not is_folder_key(key):
            raise OSError(errno.EINVAL, f"{key!r} is not the name of a folder")
        self.path: Path = root / key
        self._record = root / f".{key}.record"
        self._lock = root / f".{key}.lock"
        self._brought = root / f".{key}.brought"
        self._new = root / f".{key}.new"

    # ── brought up to date ──────────────────────────────────────────────────────────────

    def lacking(self, entries: Iterable[FolderEntry]) -> tuple[tuple[str, ...], bool]:
        """The digests of contents that have to be sent for these entries; and whether the copy is as they are."""
        now = _checked(entries)
        with self._locked():
            found, files, here = self._compared(now)
            wanted = dict.fromkeys(each.content for each in files if each.content not in here)
            return tuple(wanted), not (found.written or found.removed)

    def update(self, entries: Iterable[FolderEntry], contents: Contents) -> int:
        """Have these entries in the copy, and no others that were sent before; how many were changed for that."""
        now = _checked(entries)
        with self._locked():
            found, files, here = self._compared(now)
            if not (found.written or found.removed):
                return 0
            # Results that were fetched are as they are to be.
            files = [each for each in files if not self._is_done(each, here)]
            shutil.rmtree(self._new, ignore_errors=True)
            self._new.mkdir()
            try:
                staged = [
                    self._staged(number, each, contents, here) for number, each in enumerate(files)
                ]
                for each in found.removed:
                    self._remove(each)
                others = [each for each in found.written if not each.content]
                for each in others:
                    self._make(each)
                for each, path in zip(files, staged, strict=True):
                    self._put(each, path)
            finally:
                shutil.rmtree(self._new, ignore_errors=True)
            self._note(self._record, now.values())
            self._forget_brought({each.path for each in (*found.written, *found.removed)})
        return len(files) + len(others) + len(found.removed)

    def _compared(self, now: Entries) -> tuple[FolderChanges, list[FolderEntry], dict[str, Path]]:
        """The changes to what is `now`, the files among these, and their contents that the copy has."""
        sent = self._sent()
        found = changes(sent, now, self._is_there, self._entries(self._brought))
        files = [each for each in found.written if each.content]
        return found, files, self._contents_here(sent, files)

    def _is_done(self, entry: FolderEntry, here: dict[str, Path]) -> bool:
        """Whether a file has its content already, and its permissions."""
        place = self._place(entry)
        is_here = here.get(entry.content) == place
        return is_here and stat.S_IMODE(place.stat().st_mode) == entry.mode

    def _is_there(self, entry: FolderEntry) -> bool:
        """Whether something of its kind is at its place."""
        try:
            mode = os.lstat(os.path.join(self.path, entry.name)).st_mode  # noqa: PTH118 - for each
        except OSError:
            return False
        is_kind = {"file": stat.S_ISREG, "link": stat.S_ISLNK, "folder": stat.S_ISDIR}
        return is_kind[entry.kind](mode)

    def _contents_here(self, sent: Entries, files: Iterable[FolderEntry]) -> dict[str, Path]:
        """Contents that files of the copy have by now: of renamed files, and of results that were fetched."""
        wanted = {each.content: each.size for each in files}
        places = [*((each.path, each.content) for each in files)]
        places += [(path, each.content) for path, each in sent.items() if each.content in wanted]
        found: dict[str, Path] = {}
        for path, content in places:
            place = self.path / os.fsdecode(path)
            if content in found:
                continue
            with contextlib.suppress(OSError):
                info = place.lstat()
                is_like = stat.S_ISREG(info.st_mode) and info.st_size == wanted[content]
                if is_like and digest_of(_pieces(place)) == content:
                    found[content] = place
        return found

    def _staged(
        self, number: int, entry: FolderEntry, contents: Contents, here: dict[str, Path]
    ) -> Path:
        """A file as it is to be, beside the copy."""
        path = self._new / str(number)
        sent = contents(entry.content)
        if sent is None and entry.content not in here:
            raise OSError(errno.ENODATA, f"the content of {entry.name} did not come")
        parts = sent if sent is not None else _pieces(here[entry.content])
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "wb", buffering=0) as file:  # noqa: PTH123 - it is open already
            for part in parts:
                view = memoryview(part).cast("B")
                while view:
                    view = view[file.write(view) or 0 :]
            os.fchmod(handle, entry.mode)
            os.utime(handle, ns=(entry.modified, entry.modified))
        return path

    def note_brought(self, entries: Iterable[FolderEntry]) -> None:
        """These of its entries are in the working folder, as results: until they change there, the copy keeps its own."""
        with self._locked():
            brought = self._entries(self._brought) | _checked(entries)
            self._note(self._brought, brought.values())

    def _forget_brought(self, paths: set[bytes]) -> None:
        """What is here at these paths is not what was brought any more."""
        brought = self._entries(self._brought)
        if paths & brought.keys():
            self._note(self._brought, (e for path, e in brought.items() if path not in paths))

    def _remove(self, entry: FolderEntry) -> None:
        """Remove what was sent, and is as it was then; results that lie in a folder stay, and so does that."""
        place = self._place(entry)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            info = place.lstat()
            if stat.S_ISREG(info.st_mode) and entry.content:
                if info.st_size == entry.size and digest_of(_pieces(place)) == entry.content:
                    place.unlink()
            elif not stat.S_ISDIR(info.st_mode):
                place.unlink()
            elif entry.kind == "folder":
                with contextlib.suppress(OSError):  # it has results
                    place.rmdir()

    def _make(self, entry: FolderEntry) -> None:
        """Make a folder, or a link."""
        place = self._place(entry)
        if entry.target:
            link = self._new / "link"
            link.symlink_to(os.fsdecode(entry.target))
            self._put(entry, link)
            return
        if not self._is_there(entry):
            with contextlib.suppress(FileNotFoundError):
                place.unlink()
            place.mkdir(parents=True)
        place.chmod(entry.mode | 0o700)  # else nothing could be put there

    def _put(self, entry: FolderEntry, staged: Path) -> None:
        place = self._place(entry)
        try:
            staged.replace(place)
        except IsADirectoryError:
            raise OSError(
                errno.EISDIR,
                f"{entry.name} is a {entry.kind} here, and on the machine a folder with files that nobody sent, or that changed there "
                f"({place}): rename one of the two",
            ) from None

    def _place(self, entry: FolderEntry) -> Path:
        return self.path / entry.name

    # ── searched and read ───────────────────────────────────────────────────────────────

    def find(self, patterns: Iterable[str]) -> tuple[FolderEntry, ...]:
        """The files, links and folders of the copy that these patterns match, and all that is in such folders."""
        found: list[FolderEntry] = []
        match = PathPatterns(patterns)
        for folder, folders, files in os.walk(self.path):
            inner = os.path.relpath(folder, self.path)
            for name in (*folders, *files):
                path = name if inner == "." else f"{inner}/{name}"
                if match(path):
                    with contextlib.suppress(FileNotFoundError):
                        entry = _entry(Path(folder, name), os.fsencode(path))
                        found += [entry] if entry is not None else []
        return tuple(sorted(found, key=lambda entry: entry.path.split(b"/")))

    def sent(self, patterns: Iterable[str]) -> tuple[FolderEntry, ...]:
        """What was sent of what these patterns match."""
        match = PathPatterns(patterns)
        return tuple(entry for entry in self._sent().values() if match(entry.name))

    def read(self, parts: Iterable[FilePart]) -> Iterator[bytes]:
        """Parts of files, in a row; one that has become shorter gives less, and one that is gone nothing."""
        for part in parts:
            if not FolderEntry(part.path).is_inside:
                raise OSError(errno.EINVAL, f"{part.path!r} is not a path in a folder")
            path = self.path / os.fsdecode(part.path)
            try:
                handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            except (FileNotFoundError, NotADirectoryError):
                yield b""
                continue
            with open(handle, "rb", buffering=0) as file:  # noqa: PTH123 - it is open already
                file.seek(part.start)
                yield file.read(part.stop - part.start)

    # ── its record ──────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def _locked(self) -> Generator[None]:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _sent(self) -> dict[bytes, FolderEntry]:
        """What was sent before; nothing where that is not known."""
        return self._entries(self._record)

    def _entries(self, record: Path) -> dict[bytes, FolderEntry]:
        with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
            return by_path(_RECORD.decode(record.read_bytes()))
        return {}

    def _note(self, record: Path, entries: Iterable[FolderEntry]) -> None:
        new = record.with_name(f"{record.name}-new")
        new.write_bytes(msgspec.msgpack.encode(tuple(entries)))
        new.replace(record)


def _checked(entries: Iterable[FolderEntry]) -> dict[bytes, FolderEntry]:
    try:
        return by_path(entries)
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error)) from None


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_STEP):
            yield piece


def _entry(place: Path, path: bytes) -> FolderEntry | None:
    """The entry of what is at a place; None for what has no content."""
    info = place.lstat()
    mode = stat.S_IMODE(info.st_mode) & 0o777
    if stat.S_ISLNK(info.st_mode):
        return FolderEntry(path, target=os.fsencode(os.readlink(place)))  # noqa: PTH115
    if stat.S_ISDIR(info.st_mode):
        return FolderEntry(path, mode)
    if not stat.S_ISREG(info.st_mode):
        return None
    return FolderEntry(path, mode, info.st_size, info.st_mtime_ns, digest_of(_pieces(place)))
