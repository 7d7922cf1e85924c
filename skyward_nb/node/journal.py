"""The agent's log of events, from which clients read, live and after a reconnection.

An offset counts bytes of whole frames since the agent's start. Recent frames are in memory, older ones
in files; frames that a client has seen are removed. When too much is kept, shown output is dropped, and a
`LeftOut` takes its place. So a reader that adds up the lengths of its frames, and the `size` of each
`LeftOut`, knows its offset after every frame: to continue there repeats nothing and misses nothing.
(Only the journal makes `LeftOut`; an appended one would spoil that count.)

An error of the disk never raises: it becomes `trouble`, and the journal goes on in memory.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from pathlib import Path

import msgspec

from skyward_nb.node.journal_segments import FileStore, JournalSegment, MemoryStore, whole
from skyward_nb.protocol.events import LeftOut
from skyward_nb.protocol.frames import frame


class JournalLimits(msgspec.Struct, frozen=True):
    """Limits in bytes.

    The newest `memory` bytes stay in memory; older ones go to files of about a `part`, in all up to
    `everything`. If no file can be written, `spare` bytes more are kept in memory.
    """

    part: int = 32_000_000
    memory: int = 1 << 20
    everything: int = 1_000_000_000
    spare: int = 16_000_000


LIMITS = JournalLimits()
_SHARE = 8
"""A part is worth its own file from 1/8 of its full size on; the spare memory has 8 parts."""


class Journal:
    """Frames in the order they were appended, for one reader at a time."""

    def __init__(self, folder: Path, limits: JournalLimits = LIMITS) -> None:
        self.end: int = 0
        self.trouble: str = ""
        self._folder = folder
        self._limits = limits
        self._memory = limits.memory
        # In memory: the pieces as appended, and their offsets.
        self._pieces: list[bytes] = []
        self._starts: list[int] = []
        self._recent = 0
        self._parts: list[JournalSegment] = []
        self._made = 0
        self._disk = True
        self._closed = False
        # Runs whose end was not seen, and their beginnings; both ascend.
        self._runs: list[int] = []
        self._begins: list[int] = []
        self._seen_run = 0
        self._seen = 0

    @property
    def first(self) -> int:
        """The offset of the first byte that can still be read."""
        return self._parts[0].start if self._parts else self._recent

    # ── appending ───────────────────────────────────────────────────────────────────────

    def append(self, frames: bytes) -> None:
        """Add whole frames at the end."""
        if frames:
            self._pieces.append(frames)
            self._starts.append(self.end)
            self.end += len(frames)
            if self.end - self._recent > self._memory:
                self._write_behind()

    def begin(self, run: int) -> int:
        """Mark the beginning of a run; its offset. Numbers of runs ascend; a run keeps its first mark."""
        if self._runs and run <= self._runs[-1]:
            known = self.start_of(run)
            return self.end if known is None else known
        self._runs.append(run)
        self._begins.append(self.end)
        # The trouble with files may be over.
        self._disk = not self._closed
        return self.end

    def start_of(self, run: int) -> int | None:
        """The offset of a run's beginning; None if it never began, or is forgotten."""
        index = bisect_left(self._runs, run)
        return self._begins[index] if run in self._runs[index : index + 1] else None

    def forget(self, offset: int) -> None:
        """Remove files and runs before this offset: a client has seen them.

        Frames in memory stay readable until newer ones replace them, so that a client whose line
        broke just then can go on.
        """
        self._seen = max(self._seen, min(offset, self.end))
        count = bisect_left(self._begins, self._seen)
        if count:
            self._seen_run = self._runs[count - 1]
            del self._runs[:count], self._begins[:count]
        gone = bisect_right(self._parts, self._seen, key=lambda part: part.stop)
        for part in self._parts[:gone]:
            part.remove()
        del self._parts[:gone]

    def close(self) -> None:
        """Remove all files; later frames are kept in memory."""
        self._closed, self._disk = True, False
        for part in self._parts:
            part.remove()
        self._parts.clear()
        if self._made:
            with contextlib.suppress(OSError):
                self._folder.rmdir()

    # ── reading ─────────────────────────────────────────────────────────────────────────

    def read(self, offset: int, most: int = 1 << 18) -> tuple[bytes, int]:
        """Whole frames from `offset` on, and the offset after them; no bytes at the end.

        They have about `most` bytes at most, but there is at least one. `offset` must be the beginning
        of a frame, or a result of `read`.
        """
        if offset >= self.end:
            return b"", self.end
        if offset < self._recent:
            return self._read_old(offset, most)
        return self._read_recent(offset, most)

    def _read_recent(self, offset: int, most: int) -> tuple[bytes, int]:
        starts, until = self._starts, offset + most
        first = bisect_right(starts, offset) - 1
        last = len(starts) if self.end <= until else bisect_right(starts, until) - 1
        piece = self._pieces[first]
        if offset > starts[first]:
            piece = piece[offset - starts[first] :]
        if last <= first + 1:
            if len(piece) > most:
                piece = piece[: whole(piece, most)]
            return piece, offset + len(piece)
        after = self.end if last == len(starts) else starts[last]
        return b"".join((piece, *self._pieces[first + 1 : last])), after

    def _read_old(self, offset: int, most: int) -> tuple[bytes, int]:
        found, at, room = b"", offset, most
        if at < self.first:
            at = self.first
            found = self._left_out(offset, at)
        index = bisect_right(self._parts, at, key=lambda part: part.stop)
        while index < len(self._parts) and (room > 0 or not found):
            part = self._parts[index]
            try:
                data, after = part.read(at, room, must=not found)
            except OSError as error:
                self._in_trouble(error)
                part.lose()
                continue
            if after == at:
                break
            data = data or self._left_out(at, after)
            found = found + data if found else data
            room, at = most - len(found), after
            index += at == part.stop
        return found, at

    def _left_out(self, start: int, stop: int) -> bytes:
        """The `LeftOut` frames of a gap: one for each run in it."""
        frames: list[bytes] = []
        while start < stop:
            index = bisect_right(self._begins, start)
            until = min([stop, *self._begins[index : index + 1]])
            run = self._runs[index - 1] if index else self._seen_run
            frames.append(frame(LeftOut(until - start, run)))
            start = until
        return b"".join(frames)

    # ── writing behind ──────────────────────────────────────────────────────────────────

    def _write_behind(self) -> None:
        """Move all but half the memory's limit, and the newest piece, to the segments."""
        starts = self._starts
        count = min(bisect_left(starts, self.end - self._memory // 2), len(starts) - 1)
        at = max(0, bisect_right(starts, self._seen, 0, count + 1) - 1)
        while at < count:
            run = bisect_right(self._begins, starts[at])
            begins = self._begins[run : run + 1]
            until = bisect_left(starts, begins[0], at, count) if begins else count
            data = b"".join(self._pieces[at:until])
            self._put(starts[at], data, starts[at + 1 : until + 1])
            at = until
        del self._pieces[:count], starts[:count]
        self._recent = starts[0]
        self._keep_limits()

    def _put(self, start: int, data: bytes, ends: list[int]) -> None:
        """Add frames to the last segment, or to a new one."""
        part = self._parts[-1] if self._parts else None
        if part is None or self._is_full(part, start):
            part = self._new_part(start)
        try:
            part.add(data, ends)
        except OSError as error:
            self._in_trouble(error)
            self._disk = False
            part.seal()
            if part.size == 0:
                self._parts.remove(part)
                part.remove()
            self._new_part(start).add(data, ends)

    def _is_full(self, part: JournalSegment, start: int) -> bool:
        """Whether frames at `start` go to a new segment, as a run's beginning may: that is kept longest."""
        most = self._limits.part if part.on_disk else self._limits.spare // _SHARE
        index = bisect_left(self._begins, start)
        begins = start in self._begins[index : index + 1]
        changed = part.compacted or part.on_disk != self._disk
        return changed or part.size >= most or (begins and part.size >= most // _SHARE)

    def _new_part(self, start: int) -> JournalSegment:
        if self._parts:
            self._parts[-1].seal()
        if self._disk:
            try:
                # The folder is made with its first file; no other user may enter.
                self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._folder.mkdir(mode=0o700, exist_ok=True)
            except OSError as error:
                self._in_trouble(error)
                self._disk = False
        part = JournalSegment(start, FileStore(self._new_path()) if self._disk else MemoryStore())
        self._parts.append(part)
        return part

    def _new_path(self) -> Path:
        self._made += 1
        return self._folder / f"{self._made}.part"

    def _in_trouble(self, error: OSError) -> None:
        self.trouble = self.trouble or str(error)

    # ── keeping within limits ───────────────────────────────────────────────────────────

    def _keep_limits(self) -> None:
        limits = self._limits
        for on_disk, most, part in (
            (True, limits.everything, limits.part),
            (False, limits.spare, limits.spare // _SHARE),
        ):
            size = sum(each.size for each in self._parts if each.on_disk == on_disk)
            index = self._least_needed(on_disk) if size > most - part else None
            if index is not None:
                self._scan(self._parts[index])
                index = self._least_needed(on_disk)
            while index is not None and size > most:
                size -= self._compact(index)
                index = self._least_needed(on_disk)

    def _scan(self, part: JournalSegment) -> None:
        """Look ahead for what will stay, a little at a time: appending must never take long."""
        try:
            part.scan(self._memory)
        except OSError as error:
            self._in_trouble(error)
            part.lose()

    def _least_needed(self, on_disk: bool) -> int | None:
        """The oldest segment that can be compacted, preferably one without a run's beginning."""
        beginning = None
        for index, part in enumerate(self._parts[:-1]):
            if not part.compacted and part.on_disk == on_disk:
                found = bisect_left(self._begins, part.start)
                if not any(begin < part.stop for begin in self._begins[found : found + 1]):
                    return index
                beginning = index if beginning is None else beginning
        return beginning

    def _compact(self, index: int) -> int:
        """Drop the shown output of a segment; the number of its bytes."""
        part = self._parts[index]
        size, on_disk = part.size, part.on_disk
        try:
            part.compact(self._new_path())
        except OSError as error:
            self._in_trouble(error)
            part.lose()
        dropped = size - (part.size if part.on_disk == on_disk else 0)
        for left in (index, index - 1):
            if 0 <= left < len(self._parts) - 1 and self._parts[left].absorb(self._parts[left + 1]):
                del self._parts[left + 1]
        return dropped
