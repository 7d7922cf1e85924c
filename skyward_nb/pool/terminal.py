r"""What is printed acts as in a terminal: the cursor, what is typed over, colours. Pure.

The terminal is as wide as any line and 200 rows high. Lines that its cursor has left by going down
are the caller's; they are asked for again when it goes up to them. Where a notebook is better off,
it differs:

- a tab stays a tab in a line that nothing is typed over; in others it only moves the cursor;
- blanks at the end of a row are dropped once something was typed over it;
- the cursor cannot be moved down below the last row but by line ends, and by absolute addresses;
- what clears the screen leaves no empty rows above the cursor: it is then in the first one;
- a title or link that is never ended ends with its line.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from skyward_nb.pool.terminal_writer import (
    HEIGHT,
    LONGEST_LINE,
    Screen,
    TakeBack,
    TerminalWriter,
    counted,
)

__all__ = ["HEIGHT", "LONGEST_LINE", "Screen", "feed", "seen"]

_LONGEST_ESCAPE = 256
_CONTROLS = "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]"
_CONTROL = re.compile(_CONTROLS)
# It begins with a set of letters, which is found much faster than one of several beginnings.
_ESCAPE = re.compile(
    f"({_CONTROLS}(?:(?<!\x1b)|"
    r"\[(?![0-9;:]*m)[0-?]*[ -/]*[@-~]?"
    "|\\][^\x07\x18\x1a\x1b\n]*(?:\x07|\x1b\\\\)?"
    "|[PX^_][^\x18\x1a\x1b]*(?:\x1b\\\\)?"
    "|[ -/]+[0-~]?"
    r"|[0-OQ-WYZ\\`-~]"
    r"|(?!\[)"
    "))"
)
_MORE_THAN_RETURNS = re.compile("[^\n\r -~]")
_UNFINISHED = re.compile(
    "\x1b(?:"
    r"\[[0-?]*[ -/]*"
    "|\\][^\x07\x18\x1a\x1b\n]*\x1b?"
    "|[PX^_][^\x18\x1a\x1b]*\x1b?"
    "|[ -/]*"
    r")\Z"
)
_MOVE = re.compile(r"\x1b\[([0-9;]*)([@-~])")


def feed(screen: Screen, text: str, take_back: TakeBack) -> tuple[Screen, list[str]]:
    """The screen after `text`, and the lines that were ended by it, in order.

    `take_back` gives the text of the last line that the caller holds of this stream, which is then
    no longer the caller's, or None if there is none.
    """
    pen = TerminalWriter(screen, take_back)
    # As "\n" alone, and much the faster: the cursor goes to the next row's begin either way.
    text = text.replace("\r\n", "\n")
    if not screen.pending and not _CONTROL.search(text):
        pen.write(text)
        return pen.screen(""), pen.lines
    if not screen.pending and text.count("\r") > 1 and not _MORE_THAN_RETURNS.search(text):
        text = "\n".join(map(_without_typed_over, text.split("\n")))
    text, pending = _held_back(screen.pending + text)
    stretch, *rest = _ESCAPE.split(text)
    pen.write(stretch)
    for escape, stretch in zip(rest[::2], rest[1::2], strict=True):
        _obey(pen, escape)
        pen.write(stretch)
    return pen.screen(pending), pen.lines


def seen(screen: Screen) -> list[str]:
    """The rows on the screen as lines, without empty ones at the end."""
    rows = [counted(screen.rows[0], screen.over), *screen.rows[1:]]
    while rows and not rows[-1]:
        rows.pop()
    return rows


def _without_typed_over(line: str) -> str:
    """A line of plain letters without those parts that a later one is typed over whole."""
    *parts, last = line.split("\r")
    # Two that have letters stay: then it is known that something was typed over.
    heads = [at for at, part in enumerate(parts) if part][:2]
    first = heads[-1] + 1 if heads else 1
    kept = [last]
    for part in reversed(parts[first:]):
        if len(part) > len(kept[-1]):
            kept.append(part)
    return "\r".join([*parts[:first], *reversed(kept)])


def _held_back(text: str) -> tuple[str, str]:
    """Text without an escape that is cut off at its end, and what must be kept of that."""
    last = text.rfind("\x1b")
    if last < 0:
        return text, ""
    # The last but one: what ends a string is an escape itself.
    found = _UNFINISHED.search(text, max(0, text.rfind("\x1b", 0, last)))
    if not found:
        return text, ""
    cut = found[0]
    if cut[1:2] in ("]", "P", "X", "^", "_") and len(cut) > 2:
        cut = cut[:2] + "\x1b" * cut.endswith("\x1b")
    elif len(cut) > _LONGEST_ESCAPE:
        # Still too long to mean anything, and it ends as it did.
        cut = cut[:_LONGEST_ESCAPE] + cut[-1]
    return text[: found.start()], cut


def _obey(pen: TerminalWriter, escape: str) -> None:
    """Act on one control character or escape; those that mean nothing here are dropped."""
    if found := _MOVE.fullmatch(escape, 0, _LONGEST_ESCAPE):
        first, second = (int(number or 0) for number in f"{found[1]};0;0".split(";")[:2])
        if move := _MOVES.get(found[2]):
            move(pen, first, second)
    elif act := _ACTS.get(escape):
        act(pen)
    elif "\ud800" <= escape <= "\udfff":
        pen.write("\ufffd")


def _line_up(pen: TerminalWriter, rows: int) -> None:
    pen.go_up(rows)
    pen.set_column(0)


def _line_down(pen: TerminalWriter, rows: int) -> None:
    pen.sink(rows)
    pen.set_column(0)


def _next_row(pen: TerminalWriter) -> None:
    pen.go_down()
    pen.set_column(0)


def _reset(pen: TerminalWriter) -> None:
    pen.erase_all()
    pen.set_column(0)
    pen.style = ""


def _erase_screen(pen: TerminalWriter, part: int) -> None:
    if part == 0:
        pen.erase_right()
        pen.below.clear()
    elif part == 1:
        pen.erase_above()
        pen.erase_left()
    elif part == 2:
        pen.erase_all()


def _erase_row(pen: TerminalWriter, part: int) -> None:
    erase = {0: pen.erase_right, 1: pen.erase_left, 2: pen.erase_row}.get(part)
    if erase:
        erase()


_ACTS: dict[str, Callable[[TerminalWriter], object]] = {
    "\r": lambda pen: pen.set_column(0),
    "\b": lambda pen: pen.set_column(pen.column - 1),
    "\v": TerminalWriter.go_down,
    "\f": TerminalWriter.go_down,
    "\x1b7": TerminalWriter.save,
    "\x1b8": TerminalWriter.restore,
    "\x1bD": TerminalWriter.go_down,
    "\x1bE": _next_row,
    "\x1bM": lambda pen: pen.go_up(1),
    "\x1bc": _reset,
}

_MOVES: dict[str, Callable[[TerminalWriter, int, int], object]] = {
    "A": lambda pen, n, _: pen.go_up(n or 1),
    "B": lambda pen, n, _: pen.sink(n or 1),
    "C": lambda pen, n, _: pen.set_column(pen.column + (n or 1)),
    "D": lambda pen, n, _: pen.set_column(pen.column - (n or 1)),
    "E": lambda pen, n, _: _line_down(pen, n or 1),
    "F": lambda pen, n, _: _line_up(pen, n or 1),
    "G": lambda pen, n, _: pen.set_column(n - 1),
    "H": lambda pen, n, m: pen.go_to(max(0, n - 1), m - 1),
    "J": lambda pen, n, _: _erase_screen(pen, n),
    "K": lambda pen, n, _: _erase_row(pen, n),
    "P": lambda pen, n, _: pen.delete(n or 1),
    "X": lambda pen, n, _: pen.blank(n or 1),
    "@": lambda pen, n, _: pen.insert(n or 1),
    "d": lambda pen, n, _: pen.go_to(max(0, n - 1), pen.column),
    "s": lambda pen, _n, _m: pen.save(),
    "u": lambda pen, _n, _m: pen.restore(),
}
_MOVES["a"], _MOVES["e"], _MOVES["f"], _MOVES["`"] = (_MOVES[key] for key in "CBHG")
