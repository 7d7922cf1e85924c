"""What ranks printed in a run, read back from disk line by line; and what was said of machines.

It reads while the run goes on, from any process, and what a crash left behind: where something
is missing a note says so, and reading never raises for what is in the files.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from typing import Literal, TypeVar

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
from skyward_nb.protocol.events import Display, Output
from skyward_nb.protocol.frames import FrameError, Frames, event_frames, node_frames
from skyward_nb.words.errors import spell_size
from skyward_nb.words.node_log_entry import NodeLogEntry

LONGEST_LINE = 1_000_000
_CHUNK = 1 << 20

M = TypeVar("M")
Stream = Literal["stdout", "stderr", "display", "note"]


class MissingOutput(msgspec.Struct, frozen=True):
    """What of a log is not there, in words."""

    text: str


class LogLine(msgspec.Struct, frozen=True):
    r"""One line, without its end, as it was printed: `\r` and escapes are still in it.

    A `note` is ours, of no rank, and says what is missing. A `display` is a line of what a
    rank displayed: its text, and the MIME types of what is not kept.
    """

    rank: int | None
    stream: Stream
    text: str


def read(
    pool_id: str,
    run: int,
    ranks: Collection[int] | None = None,
    streams: Collection[str] | None = None,
) -> Iterator[LogLine]:
    """The lines of a run in the order in which they ended, of some ranks and streams if asked.

    Streams are stdout, stderr and display; notes always come. A line stands whole, however it was
    printed; only one of more than a million characters comes in pieces. Lines that never ended
    come last.
    """
    lines = _Lines(ranks, streams)
    with contextlib.ExitStack() as opened:
        parts = _open_parts(pool_id, run, opened)
        if not parts:
            yield _note(f"nothing of run {pool_id}/{run} is on disk")
            return
        for found in _in_parts(parts, event_frames):
            if isinstance(found, MissingOutput):
                yield from lines.ended()
                yield _note(found.text)
            elif isinstance(found, (Output, Display)):
                yield from lines.of(found)
        yield from lines.ended()


def read_nodes(pool_id: str) -> Iterator[NodeLogEntry | MissingOutput]:
    """What was said of a pool's machines, in its order; nothing where nothing is on disk."""
    with contextlib.ExitStack() as opened:
        yield from _in_parts(_open_parts(pool_id, NODES, opened), node_frames)


def _in_parts(
    parts: list[tuple[int, int]], frames: Callable[[], Frames[M]]
) -> Iterator[M | MissingOutput]:
    """What stands in these parts, and what is missing where."""
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


def _open_parts(pool_id: str, run: int, opened: contextlib.ExitStack) -> list[tuple[int, int]]:
    """(number, descriptor) of all parts at once, so that none goes while others are read."""
    there = kept(pool_id, run)
    found: list[tuple[int, int]] = []
    for part in there.parts if there else ():
        with contextlib.suppress(OSError):
            descriptor = os.open(part_path(pool_id, run, part), os.O_RDONLY | os.O_NOFOLLOW)
            opened.callback(os.close, descriptor)
            found.append((part, descriptor))
    return found


def _begin(descriptor: int) -> DroppedOutput | None:
    """Read the header of a part; None when it is none."""
    try:
        return read_header(os.read(descriptor, HEADER_SIZE))
    except OSError:
        return None


def _in_part(
    part: int, descriptor: int, frames: Frames[M], head: int | None
) -> Iterator[M | MissingOutput]:
    """What stands in one part up to its end or its damage.

    With a `head`, this is the last part of a run that may go on: then a frame at its end that
    is not whole is only not written yet.
    """
    taken = read_so_far = 0
    try:
        while data := os.read(descriptor, _CHUNK):
            read_so_far += len(data)
            for message, data_of_it in frames.feed_both(data):
                taken += len(data_of_it)
                yield message
    except (FrameError, OSError, ValueError, RecursionError) as error:
        # ValueError: text that is no UTF-8; RecursionError: nesting that was never written.
        yield MissingOutput(f"{_spell_part(part)} is damaged after {spell_size(taken)}: {error}")
        return
    left = read_so_far - taken
    if left and not (head is not None and goes_on(head)):
        yield MissingOutput(
            f"{_spell_part(part)} ends in the middle: {spell_size(left)} cannot be read"
        )


class _Lines:
    """Joins what ranks print to lines, rank by rank and stream by stream."""

    def __init__(self, ranks: Collection[int] | None, streams: Collection[str] | None) -> None:
        self._ranks = ranks
        self._streams = streams
        self._begun: dict[tuple[int, Stream], list[str]] = {}
        self._lengths: dict[tuple[int, Stream], int] = {}

    def of(self, event: Output | Display) -> Iterator[LogLine]:
        """The lines that end with this event."""
        if self._ranks is not None and event.rank not in self._ranks:
            return
        if isinstance(event, Display):
            if self._wants("display"):
                for line in _display_lines(event):
                    yield LogLine(event.rank, "display", line)
            return
        stream: Stream = "stderr" if event.stream == "stderr" else "stdout"
        if self._wants(stream):
            yield from self._print(event.rank, stream, event.text)

    def _wants(self, stream: Stream) -> bool:
        return self._streams is None or stream in self._streams

    def _print(self, rank: int, stream: Stream, text: str) -> Iterator[LogLine]:
        key = rank, stream
        *whole, rest = text.split("\n")
        for line in whole:
            yield LogLine(rank, stream, self._take(key) + line if key in self._begun else line)
        if rest:
            self._begun.setdefault(key, []).append(rest)
            self._lengths[key] = self._lengths.get(key, 0) + len(rest)
            if self._lengths[key] > LONGEST_LINE:
                yield LogLine(rank, stream, self._take(key))

    def _take(self, key: tuple[int, Stream]) -> str:
        self._lengths.pop(key, None)
        return "".join(self._begun.pop(key))

    def ended(self) -> Iterator[LogLine]:
        """The lines that were begun and will not end, in the order in which they began."""
        for key in list(self._begun):
            yield LogLine(*key, self._take(key))


def _display_lines(event: Display) -> list[str]:
    """What a rank displayed in words: `(image/png) <Figure …>`."""
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
