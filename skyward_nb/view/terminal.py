r"""What is printed acts as in a terminal, as far as progress bars and logs ask for it. Pure.

Carriage returns and backspaces, the cursor moved in its row, up and down (`ESC[A` to `ESC[G`), the
rest of the row or of the screen and the whole row erased (`ESC[K`, `ESC[2K`, `ESC[J`), and styles.
Other escapes and control characters are dropped. Each character takes one column.

The terminal is as wide as any line and 200 rows high. Lines that its cursor has left by going down
are the caller's; they are asked for again when it goes up to them. Blanks at the end of a row are
dropped once something was typed over it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from skyward_nb.view.sgr import RESET, Run, restyle, runs_of, text_of

LONGEST_LINE = 2000
HEIGHT = 200

_LONGEST_ESCAPE = 4096
_CONTROLS = "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]"
_CONTROL = re.compile(_CONTROLS)
# Moves, styles, and what is dropped: other sequences, titles and links, escapes of other kinds.
_ESCAPE = re.compile(
    r"\x1b\[([0-9]{0,9})([A-GJK])"
    r"|\x1b\[([0-9;]{0,100})m"
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"
    "|\x1b\\][^\x07\x1b\n]*(?:\x07|\x1b\\\\)?"
    "|\x1b[ -/]*[0-~]"
    f"|{_CONTROLS}"
)
_UNFINISHED = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*"
    "|\\][^\x07\x1b\n]*\x1b?"
    r"|[ -/]*)\Z"
)

_MORE = re.compile(r" … ([0-9][0-9,]*) more characters\Z")

TakeBack = Callable[[], str | None]


class Screen(msgspec.Struct, frozen=True):
    """What one rank's stream has on its screen, from the cursor's row down.

    `rows` begin with the cursor's; there are further ones only after it went up. `column` is where
    the next letter goes, `style` (as in `sgr`) how it looks. The cursor's row has `length` letters,
    of which the first `LONGEST_LINE` are kept, and is `touched` once something was typed over it.
    `pending` is an escape that is not complete.
    """

    rows: tuple[str, ...] = ("",)
    column: int = 0
    style: str = ""
    length: int = 0
    touched: bool = False
    pending: str = ""


def is_plain(line: str) -> bool:
    """Whether a terminal shows a line without its end as it is."""
    return len(line) <= LONGEST_LINE and not _CONTROL.search(line)


def feed(screen: Screen, text: str, take_back: TakeBack) -> tuple[Screen, list[str]]:
    """The screen after `text`, and the lines that were ended by it, in order.

    `take_back` gives the text of the last line that the caller holds of this stream, which is then
    no longer the caller's, or None if there is none.
    """
    writer = _Writer(screen, take_back)
    # As "\n" alone, and much the faster: the cursor goes to the next row's begin either way.
    text = screen.pending + text.replace("\r\n", "\n")
    if not _CONTROL.search(text):
        writer.write(text)
        return writer.screen(""), writer.lines
    unfinished = _UNFINISHED.search(text, max(0, len(text) - _LONGEST_ESCAPE))
    end = unfinished.start() if unfinished else len(text)
    at = 0
    for found in _ESCAPE.finditer(text, 0, end):
        writer.write(text[at : found.start()])
        at = found.end()
        count, move, change = found.groups()
        if change is not None:
            writer.style = restyle(writer.style, change)
        elif move:
            writer.move(move, int(count or 0))
        elif found[0] == "\r":
            writer.column = 0
        elif found[0] == "\b":
            writer.go_to(writer.column - 1)
        elif "\ud800" <= found[0] <= "\udfff":
            writer.write("\ufffd")
    writer.write(text[at:end])
    return writer.screen(text[end:]), writer.lines


def seen(screen: Screen) -> list[str]:
    """The rows on the screen as lines, without empty ones at the end."""
    rows = [_counted(screen.rows[0], screen.length), *screen.rows[1:]]
    while rows and not rows[-1]:
        rows.pop()
    return rows


def _counted(row: str, length: int) -> str:
    """A row as a line that tells how many letters of it are not kept."""
    over = length - LONGEST_LINE
    return f"{row} … {over:,} more characters" if over > 0 else row


def _cut(runs: list[Run], at: int) -> tuple[list[Run], list[Run]]:
    """Runs before column `at`, and from there on."""
    before: list[Run] = []
    for number, (style, text) in enumerate(runs):
        if len(text) > at:
            head = [(style, text[:at])] if at else []
            return before + head, [(style, text[at:]), *runs[number + 1 :]]
        before.append((style, text))
        at -= len(text)
    return before, []


class _Writer:
    """A screen while it is written on."""

    def __init__(self, screen: Screen, take_back: TakeBack) -> None:
        self.lines: list[str] = []
        self.column: int = screen.column
        self.style: str = screen.style
        self._take_back = take_back
        self._runs: list[Run] = runs_of(screen.rows[0])
        self._below: list[str] = list(screen.rows[:0:-1])
        self._length: int = screen.length
        self._touched: bool = screen.touched

    def screen(self, pending: str) -> Screen:
        """The screen as it now is."""
        row = self._text()
        rows = (row, *reversed(self._below))
        return Screen(rows, self.column, self.style, self._length, self._touched, pending)

    # ── letters ──

    def write(self, text: str) -> None:
        """Put text that has no escapes, but line ends."""
        if not text:
            return
        first, *others = text.split("\n")
        self._put(first)
        if len(others) > 1 and not self._below:
            # Most of what is printed: whole lines, and nothing else stands on the screen.
            last = others.pop()
            self._go_down()
            if self.style or max(map(len, others)) > LONGEST_LINE:
                others = map(self._line, others)
            self.lines += others
            self.column = 0
            self._put(last)
            return
        for line in others:
            self._go_down()
            self.column = 0
            self._put(line)

    def _line(self, text: str) -> str:
        kept = text[:LONGEST_LINE]
        styled = f"\x1b[{self.style}m{kept}{RESET}" if self.style and kept else kept
        return _counted(styled, len(text))

    def _put(self, text: str) -> None:
        """Put letters at the cursor."""
        if not text:
            return
        start = self.column
        self.column = end = start + len(text)
        kept = text[: LONGEST_LINE - start] if start < LONGEST_LINE else ""
        if start == self._length:
            self._add(self.style, kept)
            self._length = end
        else:
            self._touched = True
            self._add("", " " * (min(start, LONGEST_LINE) - self._length))
            self._runs, rest = _cut(self._runs, start)
            self._add(self.style, kept)
            for style, part in _cut(rest, len(kept))[1]:
                self._add(style, part)
            self._length = max(self._length, end)

    def _add(self, style: str, text: str) -> None:
        runs = self._runs
        if text and runs and runs[-1][0] == style:
            runs[-1] = style, runs[-1][1] + text
        elif text:
            runs.append((style, text))

    def _text(self) -> str:
        """The cursor's row as text."""
        if self._touched and self._length <= LONGEST_LINE:
            while self._runs and not self._runs[-1][0]:
                kept = self._runs.pop()[1].rstrip(" ")
                self._add("", kept)
                if kept:
                    break
            self._length = sum(len(text) for _, text in self._runs)
        return text_of(self._runs)

    # ── the cursor ──

    def move(self, kind: str, count: int) -> None:
        """Act on an escape that moves the cursor or erases."""
        match kind:
            case "A" | "F":
                self._go_up(count or 1)
            case "B" | "E":
                for _ in range(min(count or 1, len(self._below))):
                    self._go_down()
            case "C":
                self.go_to(self.column + (count or 1))
            case "D":
                self.go_to(self.column - (count or 1))
            case "G":
                self.go_to(count - 1)
            case "J" if count == 0:
                self._below.clear()
                self._erase(self.column)
            case "K" if count in (0, 2):
                self._erase(0 if count else self.column)
            case _:
                """No program asks for the other ways to erase."""
        if kind in "EF":
            self.column = 0

    def go_to(self, column: int) -> None:
        """The cursor goes to a column of its row, no further right than is kept."""
        self.column = min(max(0, column), max(self.column, LONGEST_LINE - 1))

    def _erase(self, column: int) -> None:
        if column < self._length:
            self._runs, self._length, self._touched = _cut(self._runs, column)[0], column, True

    def _go_down(self) -> None:
        """The cursor leaves its row, to the one below it or to a new one."""
        self.lines.append(_counted(self._text(), self._length))
        self._enter(self._below.pop() if self._below else "")

    def _go_up(self, count: int) -> None:
        """The cursor goes up as far as there are rows on the screen."""
        for _ in range(min(count, HEIGHT - 1 - len(self._below))):
            text = self.lines.pop() if self.lines else self._take_back()
            if text is None:
                return
            self._below.append(_counted(self._text(), self._length))
            self._enter(text)

    def _enter(self, text: str) -> None:
        """The cursor comes to a row that was there before, or to a new one."""
        self._runs, self._length, self._touched = [], 0, False
        if text:
            found = _MORE.search(text)
            self._runs = runs_of(text[: found.start()] if found else text)
            over = int(found[1].replace(",", "")) if found else 0
            self._length = over + sum(len(text) for _, text in self._runs)
