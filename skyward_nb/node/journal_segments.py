"""Older segments of the journal, in files, or in memory if files fail: whole, or without shown output.

A segment knows frames and offsets; `node/journal` knows runs, limits and readers.
"""

from __future__ import annotations

import contextlib
import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from skyward_nb.protocol.events import (
    Clear,
    Display,
    Metric,
    Metrics,
    Output,
    Progress,
    RankPhase,
    Waited,
)

_HEAD = 4
_length = struct.Struct(">I").unpack_from
_SMALL = 1 << 16
"""Bytes between places where a reading may end, and of events that are not worth a file."""

_AT_ONCE = 1 << 20

_encode = msgspec.msgpack.encode
_KIND = _HEAD + 1
"""The offset of a frame's kind: after its length and one byte that counts its fields."""
_SHOWN = tuple(
    _encode("type") + _encode(kind.__name__)
    for kind in (Output, Progress, Display, Clear, Metric, Metrics, RankPhase, Waited)
)


class MemoryStore:
    """Bytes in memory, to which others are added."""

    on_disk = False

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        """Add bytes at the end."""
        self._data += data

    def read(self, place: int, size: int) -> bytes:
        """These bytes."""
        return bytes(memoryview(self._data)[place : place + size])

    def seal(self) -> None:
        """Nothing to do."""

    def remove(self) -> None:
        """Nothing to do: they go with this object."""


class FileStore:
    """Bytes in a file that only its user may read; it is open only while it is written to."""

    on_disk = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._size = 0
        self._ours = False

    def add(self, data: bytes) -> None:
        """Add bytes at the end; raises OSError, and then the file is as it was."""
        if self._file < 0:
            # An existing file belongs to somebody else.
            new = 0 if self._ours else os.O_CREAT | os.O_EXCL
            self._file = os.open(self._path, os.O_WRONLY | new | os.O_CLOEXEC, 0o600)
            self._ours = True
        left = memoryview(data)
        try:
            while left:
                left = left[os.pwrite(self._file, left, self._size + len(data) - len(left)) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def read(self, place: int, size: int) -> bytes:
        """These bytes; raises OSError if they are gone."""
        with self._path.open("rb") as file:
            file.seek(place)
            data = file.read(size)
        if len(data) < size:
            raise OSError(f"{self._path} was cut short")
        return data

    def seal(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def remove(self) -> None:
        """Close and remove the file."""
        self.seal()
        if self._ours:
            with contextlib.suppress(OSError):
                self._path.unlink()


AppendStore = MemoryStore | FileStore


def whole(data: bytes, most: int) -> int:
    """The size of the first whole frames: at most `most` bytes, but one frame in any case.

    Reads no more than `most` bytes; of a longer frame, the head is enough.
    """
    end, at = min(max(most, _HEAD), len(data)), 0
    while at + _HEAD <= end:
        after = at + _HEAD + _length(data, at)[0]
        if after > end:
            return at or after
        at = after
    return at or len(data)


class FrameSpan(NamedTuple):
    """Consecutive frames from `offset` of the journal on, at `place` in the store."""

    offset: int
    size: int
    place: int


def unshown(data: bytes, start: int) -> tuple[list[FrameSpan], bytes]:
    """The spans of these frames without shown output, and their bytes; `data` is at offset `start`."""
    stretches: list[FrameSpan] = []
    pieces: list[bytes] = []
    shown, since, at, place = data.startswith, -1, 0, 0
    while at < len(data):
        if shown(_SHOWN, at + _KIND):
            if since >= 0:
                stretches.append(FrameSpan(start + since, at - since, place))
                pieces.append(data[since:at])
                place += at - since
                since = -1
        elif since < 0:
            since = at
        at += _HEAD + _length(data, at)[0]
    if since >= 0:
        stretches.append(FrameSpan(start + since, len(data) - since, place))
        pieces.append(data[since:])
    return stretches, b"".join(pieces)


class JournalSegment:
    """The journal from `start` to `stop`: all of it or, after `compact`, without shown output.

    Frames keep their offsets, so a reader is never sent back, and reads nothing twice.
    """

    def __init__(self, start: int, store: AppendStore) -> None:
        self.start: int = start
        self.stop: int = start
        self.size: int = 0
        self.compacted: bool = False
        self._store = store
        self._stretches: list[FrameSpan] = []
        self._cuts: list[int] = []
        # The spans found so far that stay when this segment is compacted.
        self._scanned = start
        self._staying: list[FrameSpan] = []
        self._kept = bytearray()

    @property
    def on_disk(self) -> bool:
        """Whether its bytes are in a file."""
        return self._store.on_disk

    def add(self, data: bytes, ends: Sequence[int]) -> None:
        """Add whole frames; `ends` are ascending offsets at which one of them ends. Raises OSError."""
        self._store.add(data)
        at = self.stop
        self.stop += len(data)
        self.size += len(data)
        self._stretches = [FrameSpan(self.start, self.size, 0)]
        while (found := bisect_left(ends, at + _SMALL)) < len(ends):
            at = ends[found]
            self._cuts.append(at)

    def seal(self) -> None:
        """Nothing more is added."""
        self._store.seal()

    def read(self, at: int, most: int, must: bool) -> tuple[bytes, int]:
        """Consecutive frames from `at` on, and the offset after them. Raises OSError.

        No bytes mean a gap that ends at that offset; or, if that is `at`, a next frame of more than `most`
        bytes, which is read only if one frame `must` be.
        """
        index = bisect_right(self._stretches, at, key=lambda stretch: stretch.offset) - 1
        stretch = self._stretches[index] if index >= 0 else FrameSpan(self.start, 0, 0)
        left = stretch.offset + stretch.size - at
        if left <= 0:
            later = index + 1 < len(self._stretches)
            return b"", self._stretches[index + 1].offset if later else self.stop
        place = stretch.place + at - stretch.offset
        size = left
        if left > most:
            cut = bisect_right(self._cuts, at + most) - 1
            if cut >= 0 and self._cuts[cut] > at:
                size = self._cuts[cut] - at
            else:
                near = max(most, _HEAD)
                size = min(left, whole(self._store.read(place, min(left, near)), near))
            if size > most and not must:
                return b"", at
        return self._store.read(place, size), at + size

    def scan(self, size: int) -> None:
        """Look through `size` more bytes for what stays when it is compacted. Raises OSError."""
        until = min(self._scanned + size, self.stop)
        while self._scanned < until:
            most = min(until - self._scanned, _AT_ONCE)
            data, after = self.read(self._scanned, most, must=True)
            found, kept = unshown(data, self._scanned)
            before = len(self._kept)
            self._staying += [each._replace(place=before + each.place) for each in found]
            self._kept += kept
            self._scanned = after

    def compact(self, path: Path) -> None:
        """Drop shown output; much of the rest goes into a new file at `path`. Raises OSError."""
        self.scan(self.stop - self._scanned)
        self._store.remove()
        self._store = _stored(bytes(self._kept), path)
        self._stretches, self.size = self._staying, len(self._kept)
        self.compacted = True
        self._kept = bytearray()
        self._cuts.clear()

    def absorb(self, after: JournalSegment) -> bool:
        """Join the segment that follows, if both are compacted and small."""
        if not (self.compacted and after.compacted) or self.size + after.size > _SMALL:
            return False
        both = self._store.read(0, self.size) + after._store.read(0, after.size)
        self._stretches += [
            FrameSpan(each.offset, each.size, self.size + each.place) for each in after._stretches
        ]
        self.remove()
        after.remove()
        self._store = MemoryStore()
        self._store.add(both)
        self.size += after.size
        self.stop = after.stop
        return True

    def lose(self) -> None:
        """Turn all of it into a gap: its bytes cannot be read any more."""
        self._store.remove()
        self._store = MemoryStore()
        self._stretches = []
        self._staying, self._kept, self._scanned = [], bytearray(), self.stop
        self.size = 0
        self.compacted = True

    def remove(self) -> None:
        """Remove its bytes."""
        self._store.remove()


def _stored(data: bytes, path: Path) -> AppendStore:
    """A store with these bytes: small ones in memory, others in a file, if possible."""
    store: AppendStore = MemoryStore()
    if len(data) > _SMALL:
        store = FileStore(path)
        try:
            store.add(data)
        except OSError:
            store.remove()
            store = MemoryStore()
        else:
            store.seal()
            return store
    store.add(data)
    return store
