"""Older stretches of the journal: in files, or in memory where files fail; whole, or without what was shown.

Knows frames and offsets, and nothing of runs, limits or readers: `node/journal` does.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from skyward_nb.node.append_store import AppendStore, FileStore, MemoryStore
from skyward_nb.protocol.events import (
    Clear,
    Display,
    Metric,
    Metrics,
    Output,
    Progress,
    RankPhase,
)

_HEAD = 4
_length = struct.Struct(">I").unpack_from
_SMALL = 1 << 16
"""Bytes between places where a reading may end, and of events that are not worth a file."""

_AT_ONCE = 1 << 20

_encode = msgspec.msgpack.encode
_KIND = _HEAD + 1
"""Where a frame's kind is: behind its length and one byte that counts its fields."""
_SHOWN = tuple(
    _encode("type") + _encode(kind.__name__)
    for kind in (Output, Progress, Display, Clear, Metric, Metrics, RankPhase)
)


def whole(data: bytes, most: int) -> int:
    """How many bytes the first whole frames have: at most `most`, but the first one in any case.

    Looks at no more than `most` bytes; of a frame that is longer its head is enough.
    """
    end, at = min(max(most, _HEAD), len(data)), 0
    while at + _HEAD <= end:
        after = at + _HEAD + _length(data, at)[0]
        if after > end:
            return at or after
        at = after
    return at or len(data)


class FrameSpan(NamedTuple):
    """Frames that followed each other from `offset` of the journal on, at `place` in what is stored."""

    offset: int
    size: int
    place: int


def unshown(data: bytes, start: int) -> tuple[list[FrameSpan], bytes]:
    """What of these frames is no shown output: its stretches, and their bytes. `start` is data's offset."""
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
    """The journal from `start` to `stop`, all of it or, once it was compacted, what was no shown output.

    What stays has the offsets it had, so whoever reads is never sent back, and nothing is read twice.
    """

    def __init__(self, start: int, store: AppendStore) -> None:
        self.start: int = start
        self.stop: int = start
        self.size: int = 0
        self.compacted: bool = False
        self._store = store
        self._stretches: list[FrameSpan] = []
        self._cuts: list[int] = []
        # What has been found so far that stays when this part is compacted.
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
        """Frames that follow each other from `at` on, and the offset after them.

        No bytes: it is a gap that ends at that offset; or, unless one frame `must` be read however
        long it is, the next one has more than `most` bytes, and the offset is `at`. Raises OSError.
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
        """Find out what stays when it is compacted, about `size` bytes further. Raises OSError."""
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
        """Keep only what is no shown output; much of it in a new file at `path`. Raises OSError."""
        self.scan(self.stop - self._scanned)
        self._store.remove()
        self._store = _stored(bytes(self._kept), path)
        self._stretches, self.size = self._staying, len(self._kept)
        self.compacted = True
        self._kept = bytearray()
        self._cuts.clear()

    def absorb(self, after: JournalSegment) -> bool:
        """Take up the part that follows, if both are compacted and little is left of them."""
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
        """Its bytes cannot be read any more: all of it is a gap."""
        self._store.remove()
        self._store = MemoryStore()
        self._stretches = []
        self._staying, self._kept, self._scanned = [], bytearray(), self.stop
        self.size = 0
        self.compacted = True

    def remove(self) -> None:
        """Nothing of it is needed any more."""
        self._store.remove()


def _stored(data: bytes, path: Path) -> AppendStore:
    """Little in memory, much in a file, if there can be one."""
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
