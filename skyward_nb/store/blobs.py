"""The content store of one machine: values as files, named by their digest.

Kernel and ranks of the same machine open the same store, so a value is written once and
mapped copy-on-write by its readers. Values lie in memory (tmpfs) while there is room,
and on disk beyond that. It knows nothing of pickles.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import BinaryIO

import xxhash

from skyward_nb.store.file_mapping import map_privately
from skyward_nb.words.errors import spell_size

MAPPED_FROM = 4 << 20
_PIECE = 1 << 20
"""Bytes that a processor keeps at hand: copied, hashed and written before the next ones."""
_STEP = 64 << 20
_SECOND = 10**9
_RESERVE = 64 << 20
_SPARE_SHARE = 8
_UNUSED_AFTER = 60 * _SECOND
_MOST_UNUSED = 256_000_000
_MOST_VERIFIED = 1000
_DIGEST = re.compile(r"[0-9a-f]{16,128}")
Buffer = bytes | bytearray | memoryview


class CorruptValue(Exception):
    """The received bytes are not the packed ones: the value changed meanwhile, or the bytes did."""


def digest_of(parts: Iterable[Buffer]) -> str:
    """The XXH3 digest of parts in a row, 128 bits as 32 hexadecimal digits.

    Source: "XXH3, a fast hash function", xxhash.com; it runs at the speed of memory. It guards
    against accidents, not against forgers: who could forge a value may run code here anyway.
    """
    hasher = xxhash.xxh3_128()
    for part in parts:
        hasher.update(part)
    return hasher.hexdigest()


def is_digest(text: str) -> bool:
    """Whether it can be the name of a value, and nothing else."""
    return _DIGEST.fullmatch(text) is not None


def seal(file: int | Path, digest: str) -> None:
    """Note on a file that its bytes were found to have this digest as they were written: readers rely on it.

    The note is the nanoseconds of the time of writing, which any later write changes. Where a file system has no such
    times, readers verify.
    """
    now = time.time_ns()
    with contextlib.suppress(OSError):
        os.utime(file, ns=(now, now - now % _SECOND + _note_of(digest)))


def _note_of(digest: str) -> int:
    return int(digest[:7], 16)


class BlobStore:
    """Blobs below one folder in memory and one on disk, that only their owner may read.

    `spare` is how many bytes of blobs that nobody needs are kept, in case they are needed
    again; by default an eighth of the memory that was free at first use, and of those that were
    not used for a minute 256 MB.
    """

    def __init__(self, memory: Path, disk: Path | None = None, spare: int | None = None) -> None:
        self.memory = memory
        self.disk = disk
        self._spare = spare
        self._verified: dict[str, tuple[int, int, int]] = {}
        """Large files whose bytes were found to have their digest, as they were then."""

    def __contains__(self, digest: str) -> bool:
        return self._find(digest) is not None

    def _find(self, digest: str) -> Path | None:
        if not is_digest(digest):  # a rank's word for it, which may be any path
            return None
        for folder in self._folders():
            path = folder / digest
            if path.exists():
                return path
        return None

    def _folders(self) -> Iterator[Path]:
        yield self.memory
        if self.disk is not None:
            yield self.disk

    def on_disk(self, digest: str) -> bool:
        """Whether the blob had to go to disk."""
        found = self._find(digest)
        return found is not None and found.parent == self.disk

    def put(
        self, digest: str, parts: Sequence[Buffer], tick: Callable[[], None] = lambda: None
    ) -> bool:
        """Write a blob from its parts, all or nothing; whether it was not there, and marked as used.

        `tick` is called now and then, as writing may take seconds.
        Raises OSError (ENOSPC) when neither memory nor disk has room; nothing is left of an
        attempt that fails. A large blob is sealed if its bytes have the digest; readers verify the others.
        """
        size = sum(memoryview(part).nbytes for part in parts)
        if self.touch(digest, size):
            return False
        if size + _RESERVE <= memory_room(self.memory):
            try:
                self._write(self.memory, digest, parts, size, tick)
            except OSError as error:
                if error.errno != errno.ENOSPC or self.disk is None:
                    raise
            else:
                return True
        self._write(self.folder_for(size, on_disk=True), digest, parts, size, tick)
        return True

    def touch(self, digest: str, size: int) -> bool:
        """Mark a blob as used; whether it is there, with that size."""
        with contextlib.suppress(FileNotFoundError), self.open(digest) as file:
            info = os.fstat(file.fileno())
            if info.st_size == size:
                # Used now, but not written: who verified it need not do so again.
                os.utime(file.fileno(), ns=(time.time_ns(), info.st_mtime_ns))
                return True
        return False

    def folder_for(self, size: int, coming: int = 0, *, on_disk: bool = False) -> Path:
        """The folder with room for so many bytes, in memory or on disk, besides the `coming` ones.

        Raises OSError (ENOSPC).
        """
        if not on_disk and size + coming + _RESERVE <= memory_room(self.memory):
            # Some machines remove what a user has in memory when the last login of theirs is over.
            _make(self.memory)
            return self.memory
        if self.disk is None or size + coming + _RESERVE > disk_room(self.disk):
            rooms = f"{spell_size(memory_room(self.memory))} free in memory"
            if self.disk is not None:
                rooms += f", {spell_size(disk_room(self.disk))} on disk"
            raise OSError(errno.ENOSPC, f"it is {spell_size(size)}, and there are {rooms}")
        _make(self.disk)
        return self.disk

    def open(self, digest: str) -> BinaryIO:
        """A blob's file, to be read; raises FileNotFoundError."""
        if (found := self._find(digest)) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), digest)
        return found.open("rb")

    def fetch(self, digests: Collection[str], tick: Callable[[], None] = lambda: None) -> None:
        """All of them are here already."""

    def _write(
        self,
        folder: Path,
        digest: str,
        parts: Sequence[Buffer],
        size: int,
        tick: Callable[[], None],
    ) -> None:
        _make(folder)
        handle, name = tempfile.mkstemp(dir=folder, prefix=".part-")
        try:
            os.fchmod(handle, 0o600)  # whatever umask the user's code has set
            with os.fdopen(handle, "wb", buffering=0) as file:
                if size < MAPPED_FROM:  # readers verify it sooner
                    for part in parts:
                        _write_whole(file, part)
                elif _write_hashed(file, parts, tick) == digest:
                    seal(handle, digest)
            Path(name).rename(folder / digest)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def map(self, digest: str) -> memoryview:
        """The blob's bytes, private to the caller: writing changes nobody else's copy.

        Raises `CorruptValue`, and forgets the blob, when there is none whose bytes have the digest.

        Only what is large is mapped, the rest is read. A large file that nobody has written to since it was
        sealed, or verified here, is not verified again.
        """
        written: tuple[int, int, int] | None = None
        try:
            with self.open(digest) as file:
                info = os.fstat(file.fileno())
                written = _identity(info)
                is_large = info.st_size >= MAPPED_FROM
                if is_large:
                    data = map_privately(file.fileno(), info.st_size)
                else:
                    data = memoryview(bytearray(file.read()))
            if is_large and (
                info.st_mtime_ns % _SECOND == _note_of(digest)
                or self._verified.get(digest) == written
            ):
                return data
            if digest_of([data]) == digest:
                if is_large:
                    self._note_verified(digest, written)
                return data
        except FileNotFoundError:
            """Another rank found it damaged, and took it away."""
        self._drop_damaged(digest, written)
        raise CorruptValue("its bytes in the store are not those that were packed")

    def _note_verified(self, digest: str, written: tuple[int, int, int]) -> None:
        if len(self._verified) >= _MOST_VERIFIED:
            self._verified.clear()
        self._verified[digest] = written

    def drop(self, digests: Collection[str]) -> None:
        """Forget these blobs; memory already mapped stays valid until its last user lets go."""
        for digest in filter(is_digest, digests):
            for folder in self._folders():
                (folder / digest).unlink(missing_ok=True)

    def _drop_damaged(self, digest: str, written: tuple[int, int, int] | None) -> None:
        """Forget a blob, unless it was put anew since."""
        with contextlib.suppress(FileNotFoundError):
            path = self._find(digest)
            if path is not None and _identity(path.stat()) == written:
                path.unlink()

    def trim(self, needed: Collection[str]) -> list[str]:
        """Forget the least recently used of the blobs not `needed`, beyond the spare room.

        Returns the digests of what went.
        """
        spare: list[tuple[int, int, Path]] = []
        for folder in self._folders():
            with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name in needed or entry.name.startswith(".part-") or entry.is_dir():
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        info = entry.stat()
                        spare.append((info.st_atime_ns, info.st_size, Path(entry.path)))
        if not spare:
            return []
        if self._spare is None:
            self._spare = memory_room(self.memory) // _SPARE_SHARE
        kept, gone, unused_since = 0, list[str](), time.time_ns() - _UNUSED_AFTER
        for used, size, path in sorted(spare, reverse=True):
            kept += size
            if kept > (self._spare if used > unused_since else min(self._spare, _MOST_UNUSED)):
                with contextlib.suppress(FileNotFoundError):
                    if path.stat().st_atime_ns != used:
                        continue  # just now
                    path.unlink()
                gone.append(path.name)
        return gone


def _identity(info: os.stat_result) -> tuple[int, int, int]:
    """Which file it is, as it was written last."""
    return info.st_ino, info.st_size, info.st_mtime_ns


def _write_whole(file: FileIO, data: Buffer) -> None:
    view = memoryview(data).cast("B")
    while view:
        view = view[file.write(view) or 0 :]


def _write_hashed(file: FileIO, parts: Iterable[Buffer], tick: Callable[[], None]) -> str:
    """Write parts in a row; the digest of what was written."""
    hasher, written, due = xxhash.xxh3_128(), 0, _STEP
    for piece in _pieces(parts):
        hasher.update(piece)
        _write_whole(file, piece)
        written += len(piece)
        if written >= due:
            due = written + _STEP
            tick()
    return hasher.hexdigest()


def _pieces(parts: Iterable[Buffer]) -> Iterator[memoryview]:
    """The bytes of parts, copied piece by piece: what is hashed and written is the same, whoever changes a part."""
    room, filled = memoryview(bytearray(_PIECE)), 0
    for part in parts:
        view = memoryview(part).cast("B")
        while view:
            count = min(len(view), _PIECE - filled)
            room[filled : filled + count] = view[:count]
            view, filled = view[count:], filled + count
            if filled == _PIECE:
                yield room
                filled = 0
    if filled:
        yield room[:filled]


def _make(folder: Path) -> None:
    """Make a folder, and the one of all pools that it is in, which only their user may enter."""
    for each in (folder.parent, folder):
        if not each.is_dir():
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
            each.chmod(0o700)  # whatever umask the user's code has set


def memory_room(folder: Path) -> int:
    """Bytes that may still be written to a folder in memory."""
    return min(disk_room(folder), free_memory())


def free_memory() -> int:
    """Bytes of memory that the machine and its control group have free, whichever is less.

    Sources: proc(5) `MemAvailable`, and the kernel's document "Control Group v2".
    """
    rooms = [sys.maxsize]
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        (line,) = [line for line in lines if line.startswith("MemAvailable:")]
        rooms.append(int(line.split()[1]) * 1024)
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        most = int((group / "memory.max").read_text())
        rooms.append(most - int((group / "memory.current").read_text()))
    return max(0, min(rooms))


def disk_room(folder: Path) -> int:
    """Bytes this user may still write to the file system a folder is in, or would be in."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    there = os.statvfs(folder)
    return there.f_bavail * there.f_frsize
