"""A reader of the logs on disk: the output of runs, line by line, and the words of machines.

Any process may read, also while a run goes on or after a crash. Notes stand for missing output;
no content of a file makes reading raise.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from typing import Generic, Literal, TypeVar

import msgspec

from skyward_nb.logs.log_files import (
    HEADER_SIZE,
    NODES,
    DroppedOutput,
    goes_on,
    kept,
    part_path,
    read_header,
)
from skyward_nb.protocol.events import Display, Event, Output
from skyward_nb.protocol.frames import FrameError, Frames, event_frames, node_frames
from skyward_nb.words.errors import spell_size
from skyward_nb.words.node_log_entry import NodeLogEntry

LONGEST_LINE = 1_000_000
_CHUNK = 1 << 20

M = TypeVar("M")
Stream = Literal["stdout", "stderr", "display", "note"]


class MissingOutput(msgspec.Struct, frozen=True):
    """A gap in a log, in words."""

    text: str


class LogLine(msgspec.Struct, frozen=True):
    r"""One printed line, without its newline; `\r` and escapes are kept.

    A `note` has no rank, and tells of missing output. A `display` is a line of a displayed object: its
    text, and the MIME types of the parts that are not kept.
    """

    rank: int | None
    stream: Stream
    text: str


def read(pool_id: str, run: int, ranks: Collection[int] | None = None) -> Iterator[LogLine]:
    """The lines of a run in the order of their ends, of these ranks (None: all), and all notes.

    A line is whole, however it was printed, unless it has more than a million characters. Lines without
    an end come last.
    """
    lines = _Lines(ranks)
    with contextlib.ExitStack() as opened:
        parts = _open_parts(pool_id, run, opened)
        if not parts:
            yield _note(f"nothing of run {pool_id}/{run} is on disk")
            return
        for found in _in_parts(parts, event_frames):
            yield from lines.of(found)
        yield from lines.ended()


def follow(
    pool_id: str, run: int, ranks: Collection[int] | None, pause: Callable[[], None]
) -> Iterator[LogLine | None]:
    """The lines of a run as `read` gives them, and those that come, until it is over.

    None stands for a moment at which all that is on disk was read; `pause` is called after it.
    """
    lines = _Lines(ranks)
    head = _open(pool_id, run, 0)
    if head is None:
        yield _note(f"nothing of run {pool_id}/{run} is on disk")
        return
    with contextlib.ExitStack() as opened, contextlib.ExitStack() as present:
        opened.callback(os.close, head)
        _begin(head)
        part = _Part(0, head, event_frames())
        while True:
            # Asked for first: a part that has another one after it is whole, as is a run that is over.
            is_over, there = not goes_on(head), kept(pool_id, run)
            later = [each for each in (there.parts if there else ()) if each > part.number]
            for found in part.new():
                yield from lines.of(found)
            if part.is_damaged:
                return
            following = next(
                ((n, d) for n in later if (d := _open(pool_id, run, n)) is not None), None
            )
            if (following or is_over) and (cut := part.cut_short()):
                yield from lines.of(cut)
            if following is not None:
                number, descriptor = following
                present.close()  # a part that was read to its end holds its place on disk until then
                present.callback(os.close, descriptor)
                _begin(descriptor)
                if number > part.number + 1:
                    yield from lines.of(MissingOutput(_spell_dropped(None, head_too=False)))
                part = _Part(number, descriptor, event_frames())
            elif is_over:
                yield from lines.ended()
                return
            else:
                yield None
                pause()


def read_nodes(pool_id: str) -> Iterator[NodeLogEntry | MissingOutput]:
    """The words of a pool's machines, in order; nothing if nothing is on disk."""
    with contextlib.ExitStack() as opened:
        yield from _in_parts(_open_parts(pool_id, NODES, opened), node_frames)


def _in_parts(
    parts: list[tuple[int, int]], frames: Callable[[], Frames[M]]
) -> Iterator[M | MissingOutput]:
    """The content of these parts, and the gaps in it."""
    head = parts[0][1] if parts and parts[0][0] == 0 else None
    dropped = [_begin(descriptor) for _, descriptor in parts]
    for index, (part, descriptor) in enumerate(parts):
        before = parts[index - 1][0] if index else -1
        if part > before + 1:
            yield MissingOutput(_spell_dropped(dropped[-1], head_too=before < 0))
        if dropped[index] is None:
            yield MissingOutput(f"{_spell_part(part)} is damaged: it cannot be read")
            continue
        is_last = index == len(parts) - 1
        yield from _in_part(part, descriptor, frames(), head if is_last else None)


def _open(pool_id: str, run: int, part: int) -> int | None:
    """The descriptor of a part; None for one that is not there any more, or is no file of ours."""
    try:
        return os.open(part_path(pool_id, run, part), os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None


def _open_parts(pool_id: str, run: int, opened: contextlib.ExitStack) -> list[tuple[int, int]]:
    """(number, descriptor) of all parts, opened at once: none is removed while others are read."""
    there = kept(pool_id, run)
    found: list[tuple[int, int]] = []
    for part in there.parts if there else ():
        if (descriptor := _open(pool_id, run, part)) is not None:
            opened.callback(os.close, descriptor)
            found.append((part, descriptor))
    return found


def _begin(descriptor: int) -> DroppedOutput | None:
    """The header of a part; None if it is damaged."""
    try:
        return read_header(os.read(descriptor, HEADER_SIZE))
    except OSError:
        return None


def _in_part(
    part: int, descriptor: int, frames: Frames[M], head: int | None
) -> Iterator[M | MissingOutput]:
    """The content of one part up to its end or its damage.

    A `head` marks the last part of a run that may go on: there, an incomplete last frame is just not
    written yet.
    """
    reader = _Part(part, descriptor, frames)
    yield from reader.new()
    if (cut := reader.cut_short()) and not (head is not None and goes_on(head)):
        yield cut


class _Part(Generic[M]):
    """One part of a log, read as far as it is written."""

    def __init__(self, number: int, descriptor: int, frames: Frames[M]) -> None:
        self.number = number
        self.is_damaged = False
        self._descriptor = descriptor
        self._frames = frames
        self._read = self._taken = 0

    def new(self) -> Iterator[M | MissingOutput]:
        """What was written since; a note at its damage, after which nothing comes."""
        try:
            while data := os.read(self._descriptor, _CHUNK):
                self._read += len(data)
                for message, data_of_it in self._frames.feed_both(data):
                    self._taken += len(data_of_it)
                    yield message
        except (FrameError, OSError, ValueError, RecursionError) as error:
            # ValueError: text that is no UTF-8; RecursionError: nesting that was never written.
            self.is_damaged = True
            size = spell_size(self._taken)
            yield MissingOutput(f"{_spell_part(self.number)} is damaged after {size}: {error}")

    def cut_short(self) -> MissingOutput | None:
        """A note if the last message is incomplete."""
        left = self._read - self._taken
        if self.is_damaged or not left:
            return None
        return MissingOutput(
            f"{_spell_part(self.number)} ends in the middle: {spell_size(left)} cannot be read"
        )


class _Lines:
    """Joins printed text to lines, for each rank and stream."""

    def __init__(self, ranks: Collection[int] | None) -> None:
        self._ranks = ranks
        self._begun: dict[tuple[int, Stream], list[str]] = {}
        self._lengths: dict[tuple[int, Stream], int] = {}

    def of(self, event: Event | MissingOutput) -> Iterator[LogLine]:
        """The lines that end with this event, if it is of these ranks, or at this gap."""
        if isinstance(event, MissingOutput):
            yield from self.ended()
            yield _note(event.text)
        if not isinstance(event, (Output, Display)) or not self._wants(event.rank):
            return
        if isinstance(event, Display):
            for line in _display_lines(event):
                yield LogLine(event.rank, "display", line)
            return
        stream: Stream = "stderr" if event.stream == "stderr" else "stdout"
        key = event.rank, stream
        *whole, rest = event.text.split("\n")
        for line in whole:
            yield LogLine(*key, self._take(key) + line if key in self._begun else line)
        if rest:
            self._begun.setdefault(key, []).append(rest)
            self._lengths[key] = self._lengths.get(key, 0) + len(rest)
            if self._lengths[key] > LONGEST_LINE:
                yield LogLine(*key, self._take(key))

    def _wants(self, rank: int) -> bool:
        return self._ranks is None or rank in self._ranks

    def _take(self, key: tuple[int, Stream]) -> str:
        self._lengths.pop(key, None)
        return "".join(self._begun.pop(key))

    def ended(self) -> Iterator[LogLine]:
        """The lines without an end, in the order of their beginnings."""
        for key in list(self._begun):
            yield LogLine(*key, self._take(key))


def _display_lines(event: Display) -> list[str]:
    """A displayed object in words: `(image/png) <Figure …>`."""
    text = event.data.get("text/plain", "")
    others = [mime for mime in event.data if mime != "text/plain"]
    words = [f"({', '.join(others)})"] if others else []
    if text:
        words.append(text)
    return " ".join(words).split("\n")


def _note(text: str) -> LogLine:
    return LogLine(None, "note", text)


def _spell_part(part: int) -> str:
    return f"part {part} of the log on disk" if part else "the log on disk"


def _spell_dropped(dropped: DroppedOutput | None, *, head_too: bool) -> str:
    if head_too:
        return "the beginning is no longer kept"
    if dropped is None or not dropped.size:
        return "some output is no longer kept"
    return f"{spell_size(dropped.size)} in {dropped.lines:,} lines are not kept"
