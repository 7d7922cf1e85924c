"""What a person should see of a run, as one value folded from events. Pure.

Text, HTML and every other picture draw this one view. It is bounded however much is printed:
the head and the tail of the output are kept, the rest is counted.
"""

from __future__ import annotations

import re
from typing import Literal, TypeVar

import msgspec
from msgspec.structs import replace

from skyward_nb.pool.ledger import Row
from skyward_nb.words.messages import (
    Clear,
    Display,
    Event,
    Metric,
    Output,
    Phase,
    Progress,
    RankDone,
    RankLost,
)

HEAD, TAIL, SLACK = 200, 400, 200
LONGEST_LINE = 2000
_KEPT = 8 * LONGEST_LINE
_LOOK_AHEAD = 16
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-_]|[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f]")

V = TypeVar("V")
RankState = Literal["waiting", "running", "done", "failed", "stopped", "lost"]
RunState = Literal["starting", "running", "finished", "failed", "interrupted"]


class Line(msgspec.Struct, frozen=True):
    """One line of output; several ranks when they wrote the same."""

    ranks: tuple[int, ...]
    stream: str
    text: str


class Shown(msgspec.Struct, frozen=True):
    """A rich object one rank displayed."""

    rank: int
    data: dict[str, str]
    display_id: str | None = None


Entry = Line | Shown


class RankView(msgspec.Struct, frozen=True):
    """How one rank is doing; `bars` in the order they began."""

    state: RankState = "running"
    bars: dict[int, Progress] = {}
    step: int | None = None
    metrics: dict[str, float] = {}


class View(msgspec.Struct, frozen=True):
    """The whole picture; `began` and `ended` in seconds of one clock.

    `cut` lines were left out before entry `gap`. `partial` are lines begun and not ended, by
    rank and stream, `overflow` the characters of them that are not kept.
    """

    title: str = ""
    about: str = ""
    state: RunState = "starting"
    phase: str = ""
    ranks: dict[int, RankView] = {}
    entries: tuple[Entry, ...] = ()
    partial: dict[str, str] = {}
    overflow: dict[str, int] = {}
    cursors: dict[int, int] = {}
    clearing: frozenset[int] = frozenset()
    cut: int = 0
    gap: int = HEAD
    began: float = 0.0
    ended: float | None = None
    headline: str = ""
    notes: tuple[str, ...] = ()
    foot: tuple[str, ...] = ()
    manifest: tuple[Row, ...] = ()
    manifest_open: bool = False


def fold(view: View, event: Event) -> View:
    """The view after one more event."""
    match event:
        case Output():
            return _print(_cleared(view, event.rank), event)
        case Display():
            return _show(_cleared(view, event.rank), event)
        case Clear(rank=rank, wait=True):
            return replace(view, clearing=view.clearing | {rank})
        case Clear(rank=rank):
            return _clear(view, rank)
        case Phase(text=text):
            return replace(view, phase=text)
        case Progress(rank=rank):
            now = view.ranks.get(rank, RankView())
            return _with_rank(view, rank, replace(now, bars={**now.bars, event.bar: event}))
        case Metric(rank=rank):
            now = view.ranks.get(rank, RankView())
            metrics = {**now.metrics, **event.values}
            return _with_rank(view, rank, replace(now, step=event.step, metrics=metrics))
        case RankDone(rank=rank):
            state: RankState = "failed" if event.failure or event.rejected else "done"
            state = "stopped" if event.interrupted else state
            now = view.ranks.get(rank, RankView())
            return _with_rank(_end_lines(view, rank), rank, replace(now, state=state))
        case RankLost(rank=rank):
            now = view.ranks.get(rank, RankView())
            end: RankState = "stopped" if event.asked else "lost"
            return _with_rank(_end_lines(view, rank), rank, replace(now, state=end))
        case _:
            return view


def open_lines(view: View) -> list[Line]:
    """Lines begun and not ended yet, as they stand, those of the ranks with the same text together."""
    found: dict[tuple[str, str], list[int]] = {}
    for key, text in view.partial.items():
        rank, _, stream = key.partition(" ")
        shown = _visible(text, view.overflow.get(key, 0))
        if shown:
            found.setdefault((stream, shown), []).append(int(rank))
    return [Line(tuple(sorted(r)), stream, text) for (stream, text), r in found.items()]


def _with_rank(view: View, rank: int, now: RankView) -> View:
    return replace(view, ranks={**view.ranks, rank: now})


# ── text ────────────────────────────────────────────────────────────────────────────────


def _visible(text: str, overflow: int = 0) -> str:
    """A line as a terminal would leave it, without escapes, and not longer than it can be shown."""
    shown = _overtyped(_ANSI.sub("", text))
    more = len(shown) - LONGEST_LINE + overflow
    return f"{shown[:LONGEST_LINE]} … {more:,} more characters" if more > 0 else shown


def _overtyped(text: str) -> str:
    """Carriage returns and backspaces acted on: what comes later stands over what was there."""
    if "\r" in text:
        line = ""
        for piece in text.split("\r"):
            piece = _overtyped(piece)
            line = piece + line[len(piece) :]
        return line
    if "\b" not in text:
        return text
    cells: list[str] = []
    at = 0
    for letter in text:
        if letter == "\b":
            at = max(0, at - 1)
        else:
            cells[at : at + 1] = [letter]
            at += 1
    return "".join(cells)


def _print(view: View, event: Output) -> View:
    key = f"{event.rank} {event.stream}"
    *lines, rest = (view.partial.get(key, "") + event.text).split("\n")
    if "\r" in rest:
        # What was typed, and where the cursor stands: the last piece types over the rest.
        rest = f"{_overtyped(rest)}\r{rest.rpartition(chr(13))[2]}"
    over = view.overflow.get(key, 0)
    view = replace(
        view,
        partial=_with(view.partial, key, rest[:_KEPT]),
        overflow=_with(view.overflow, key, max(0, len(rest) - _KEPT) + (0 if lines else over)),
    )
    if not lines:
        return view
    entries = list(view.entries)
    at = view.cursors.get(event.rank, 0)
    for number, line in enumerate(lines):
        if HEAD <= number < len(lines) - TAIL:
            continue
        if number == len(lines) - TAIL and number > HEAD:
            view = replace(view, cut=view.cut + number - HEAD, gap=len(entries))
            at = len(entries)
        text = _visible(line, over if number == 0 else 0)
        at = _place(entries, at, event.rank, event.stream, text)
    return _bounded(view, entries, {**view.cursors, event.rank: at})


def _with(known: dict[str, V], key: str, value: V) -> dict[str, V]:
    """The dictionary with a value under `key`, or without the key where there is nothing."""
    found = {**known, key: value}
    if not value:
        del found[key]
    return found


def _place(entries: list[Entry], at: int, rank: int, stream: str, text: str) -> int:
    """Put a rank's line: with an equal one of other ranks after its last, or at the end.

    Returns the index after it, from which the rank's next line may be put.
    """
    for index in range(at, min(at + _LOOK_AHEAD, len(entries))):
        entry = entries[index]
        if (
            isinstance(entry, Line)
            and entry.text == text
            and entry.stream == stream
            and rank not in entry.ranks
        ):
            entries[index] = Line(tuple(sorted((*entry.ranks, rank))), stream, text)
            return index + 1
    entries.append(Line((rank,), stream, text))
    return len(entries)


def _end_lines(view: View, rank: int) -> View:
    """A rank has finished: lines it left open are ended."""
    for stream in ("stdout", "stderr"):
        if f"{rank} {stream}" in view.partial:
            view = _print(view, Output(rank, stream, "\n"))
    return view


def _bounded(view: View, entries: list[Entry], cursors: dict[int, int]) -> View:
    excess = len(entries) - HEAD - TAIL
    if excess > SLACK:
        entries = entries[:HEAD] + entries[-TAIL:]
        cursors = {
            rank: at if at <= HEAD else max(HEAD, at - excess) for rank, at in cursors.items()
        }
        view = replace(view, cut=view.cut + excess, gap=HEAD)
    return replace(view, entries=tuple(entries), cursors=cursors)


# ── rich output ─────────────────────────────────────────────────────────────────────────


def _show(view: View, event: Display) -> View:
    shown = Shown(event.rank, event.data, event.display_id)
    if event.update:
        entries = [
            shown
            if isinstance(entry, Shown)
            and entry.rank == event.rank
            and entry.display_id == event.display_id
            else entry
            for entry in view.entries
        ]
        return replace(view, entries=tuple(entries))
    entries = [*view.entries, shown]
    return _bounded(view, entries, {**view.cursors, event.rank: len(entries)})


def _cleared(view: View, rank: int) -> View:
    return _clear(view, rank) if rank in view.clearing else view


def _clear(view: View, rank: int) -> View:
    kept: list[Entry] = []
    for entry in view.entries:
        if isinstance(entry, Line) and rank in entry.ranks:
            others = tuple(other for other in entry.ranks if other != rank)
            kept += [Line(others, entry.stream, entry.text)] if others else []
        elif not (isinstance(entry, Shown) and entry.rank == rank):
            kept.append(entry)
    cursors = {each: min(at, len(kept)) for each, at in view.cursors.items()}
    partial = {k: v for k, v in view.partial.items() if not k.startswith(f"{rank} ")}
    clearing = view.clearing - {rank}
    return replace(view, entries=tuple(kept), cursors=cursors, partial=partial, clearing=clearing)
