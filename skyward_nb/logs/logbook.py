"""The whole output of ranks, kept on disk: a picture has only its head and tail.

A run's file is made with its first output. An error here never breaks a run: it is remembered in
`Logbook.trouble`, and no more of that run's output is kept.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Concatenate, ParamSpec

from skyward_nb.logs.log_files import (
    HEADER_SIZE,
    LIMITS,
    DroppedOutput,
    LogLimits,
    header,
    lock,
    log_root,
    part_path,
    parts_of,
    sweep,
)
from skyward_nb.protocol.events import Display, Output
from skyward_nb.protocol.frames import frame

P = ParamSpec("P")
_LATE = 1.0
_SWEEP_FILES = 64
_CLOSED = -1


def _in_turn(
    method: Callable[Concatenate[Logbook, P], None],
) -> Callable[Concatenate[Logbook, P], None]:
    """The method, which one thread at a time is in: a pool may be closed as calls end in others."""

    @functools.wraps(method)
    def call(book: Logbook, *args: P.args, **kwargs: P.kwargs) -> None:
        with book.lock:
            method(book, *args, **kwargs)

    return call


class Logbook:
    """Writes the output of one pool's ranks; for any thread.

    `trouble` is the first error in words, or empty. The caller that shows it empties it; each reason is
    reported once.
    """

    def __init__(self, pool_id: str, limits: LogLimits = LIMITS) -> None:
        self.pool_id = pool_id
        self.trouble: str = ""
        self._limits = limits
        self._runs: dict[int, RunLog] = {}
        self._given_up: set[int] = set()
        self._told: set[str] = set()
        self._begun = 0
        self._grown = 0
        self.lock: threading.RLock = threading.RLock()
        """Held while it is used."""

    @_in_turn
    def write(self, event: Output | Display) -> None:
        """Keep an event in the file of its run, soon; of a display, its text and its MIME types."""
        log = self._runs.get(event.run)
        if log is None:
            if event.run in self._given_up:
                return
            log = RunLog(self.pool_id, event.run, self._limits, self._make_room)
            self._runs[event.run] = log
        if isinstance(event, Output):
            log.add(frame(event), event.text.count("\n"))
        else:
            log.add(frame(_in_words(event)), 1)
        if log.held >= self._limits.block or time.monotonic() - log.written > _LATE:
            self._flush(log)

    @_in_turn
    def begin_anew(self, run: int) -> None:
        """Remove the log of a run whose events will come again from its beginning."""
        for path in parts_of(self.pool_id, run):
            # A file that cannot be removed is continued, and has some lines twice.
            with contextlib.suppress(OSError):
                path.unlink()

    @_in_turn
    def end(self, run: int, going: Collection[int] = ()) -> None:
        """Write the output of a run that is over, and close its file and those of older runs, but for those that go on.

        Late output is still kept; it is written with a later `flush`, `end` or `close`.
        """
        for number in [number for number in self._runs if number <= run and number not in going]:
            log = self._runs[number]
            self._flush(log)
            log.close()
            if not log.is_long:
                self._runs.pop(number, None)

    @_in_turn
    def flush(self) -> None:
        """Write the buffered output, so that it can be read."""
        for log in list(self._runs.values()):
            self._flush(log)

    @_in_turn
    def flush_late(self) -> None:
        """Write what has waited for a second: who reads the log of a run that goes on has it, too."""
        for log in list(self._runs.values()):
            if log.held and time.monotonic() - log.written > _LATE:
                self._flush(log)

    @_in_turn
    def close(self) -> None:
        """Write the buffered output and close all files."""
        self.flush()
        for log in self._runs.values():
            log.close()
        self._runs.clear()

    def _flush(self, log: RunLog) -> None:
        try:
            self._grown += log.flush()
        except (OSError, RuntimeError) as error:
            # RuntimeError: the folder is below the home of a user that does not exist.
            log.close()
            self._runs.pop(log.run, None)
            self._given_up.add(log.run)
            why = spell_fault(error)
            if self.trouble or why in self._told:
                return
            self._told.add(why)
            self.trouble = (
                f"%sky logs will lack output of run {log.run}: {why}; and output of later runs, as long "
                "as that lasts. Make room there, or set SKYWARD_LOG_DIR to another folder before the "
                "kernel starts."
            )

    def _make_room(self) -> None:
        """Called before a file is begun: every so often, the oldest runs are removed."""
        if self._begun % _SWEEP_FILES == 0 or self._grown >= self._limits.part:
            self._grown = 0
            # This leaves room for the output until the next sweep.
            room = self._limits.head + self._limits.part
            sweep(max(self._limits.everything - room, 0), self._limits.runs)
        self._begun += 1


def spell_fault(error: Exception) -> str:
    """Why logs cannot be written, and where."""
    try:
        root = str(log_root())
    except (OSError, RuntimeError):  # OSError: the folder it is relative to is gone
        root = os.environ.get("SKYWARD_LOG_DIR", "")
    return f"{getattr(error, 'strerror', None) or error} ({root})"


def _in_words(event: Display) -> Display:
    """A display with its text, and without the content of its other parts."""
    data = {mime: text if mime == "text/plain" else "" for mime, text in event.data.items()}
    return Display(event.rank, data, event.display_id, event.update, event.run)


class RunLog:
    """The files of one run: a head, and the last of the parts that follow.

    A frame is never divided between parts: each write goes to one part.
    """

    def __init__(
        self, pool_id: str, run: int, limits: LogLimits, make_room: Callable[[], None]
    ) -> None:
        self.run = run
        self.written: float = time.monotonic()
        self.held: int = 0
        self._pool_id = pool_id
        self._limits = limits
        self._make_room = make_room
        self._frames: list[bytes] = []
        self._held_lines = 0
        self._head = self._file = _CLOSED
        self._part = 0
        self._size = 0
        self._lines = 0
        self._tail: deque[DroppedOutput] = deque()
        self._dropped = DroppedOutput()

    @property
    def is_long(self) -> bool:
        """Whether it has parts after its head, so that dropped output must be counted."""
        return self._part > 0

    def add(self, data: bytes, lines: int) -> None:
        """Buffer one frame."""
        self._frames.append(data)
        self.held += len(data)
        self._held_lines += lines

    def flush(self) -> int:
        """Write the buffered frames; the number of their bytes. Raises OSError."""
        self.written = time.monotonic()
        if not self._frames:
            return 0
        block, lines = b"".join(self._frames), self._held_lines
        self._frames.clear()
        self.held = self._held_lines = 0
        if self._file == _CLOSED:
            self._open()
        most = self._limits.part if self._part else self._limits.head
        if self._size + len(block) > most and self._size > HEADER_SIZE:
            self._next_part()
        _write(self._file, block)
        self._size += len(block)
        self._lines += lines
        return len(block)

    def close(self) -> None:
        """Close the files; they are opened again for later output."""
        for descriptor in {self._head, self._file} - {_CLOSED}:
            # An error that a network file system reports only now cannot be handled.
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._head = self._file = _CLOSED

    def _open(self) -> None:
        # The head is kept open for its lock, which says that the run goes on.
        self._head = self._file = self._open_part(0)
        if self._part:
            self._file = self._open_part(self._part)

    def _open_part(self, part: int) -> int:
        """Open a new or an existing part; sets its size."""
        path = part_path(self._pool_id, self.run, part)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        try:
            descriptor = os.open(path, flags, 0o600)
        except FileNotFoundError:
            _make_folder(path.parent)
            descriptor = os.open(path, flags, 0o600)
        try:
            if part == 0:
                lock(descriptor, alone=False)
            self._size = os.fstat(descriptor).st_size
            if self._size == 0:
                self._make_room()
                _begin(descriptor, path, header(self._dropped))
                self._size = HEADER_SIZE
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _next_part(self) -> None:
        if self._part:
            self._tail.append(DroppedOutput(self._size - HEADER_SIZE, self._lines))
            os.close(self._file)
        self._file, self._lines = self._head, 0
        self._part += 1
        while len(self._tail) >= self._limits.parts:
            gone = self._tail.popleft()
            self._dropped = DroppedOutput(
                self._dropped.size + gone.size, self._dropped.lines + gone.lines
            )
            oldest = self._part - len(self._tail) - 1
            part_path(self._pool_id, self.run, oldest).unlink(missing_ok=True)
        self._file = self._open_part(self._part)


def _make_folder(folder: Path) -> None:
    """Make a pool's folder and its parents; raises OSError if it belongs to another user."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")


def _begin(descriptor: int, path: Path, data: bytes) -> None:
    """Write a file's header; without room for it the file is removed, so that none seems damaged."""
    try:
        _write(descriptor, data)
    except OSError:
        # If the file cannot be removed, too, the full disk is still the error to report.
        with contextlib.suppress(OSError):
            path.unlink()
            path.parent.rmdir()
        raise


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
