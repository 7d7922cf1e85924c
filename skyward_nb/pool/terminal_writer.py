"""The cursor of a terminal, and the rows it moves and writes on. Pure.

What escapes mean is not known here, but for those of styles within text. As long as everything is
added at the end, rows are text; one that is typed over becomes `Cells`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from skyward_nb.pool.cells import TAB, Cells, columns
from skyward_nb.pool.sgr import RESET, SGR, flow, plain, restyle

LONGEST_LINE = 2000
HEIGHT = 200

_MORE = re.compile(r" … ([0-9][0-9,]*) more characters\Z")

TakeBack = Callable[[], str | None]


class Screen(msgspec.Struct, frozen=True):
    """What one rank's stream has on its screen, from the cursor's row down.

    `rows` begin with the cursor's; there are further ones only after it went up. `column` is where
    the next letter goes, `style` (as in `sgr`) how it looks. The cursor's row is `width` columns
    wide, `over` characters of it are not kept, and it is `touched` once something is typed
    elsewhere than at its end. `above` counts the rows of the screen over it. `pending` is an escape
    that is not complete, `saved` row, column and style that the cursor can be set back to.
    """

    rows: tuple[str, ...] = ("",)
    column: int = 0
    style: str = ""
    width: int = 0
    over: int = 0
    touched: bool = False
    above: int = 0
    pending: str = ""
    saved: tuple[int, int, str] = (0, 0, "")


def counted(row: str, over: int) -> str:
    """A row as a line that tells how many characters of it are not kept."""
    return f"{row} … {over:,} more characters" if over else row


def _clipped(row: str) -> tuple[str, int]:
    """A row of normalised text as long as is kept, and how many characters are not."""
    over = len(plain(row)) - LONGEST_LINE
    if over <= 0:
        return row, 0
    if "\x1b" not in row:
        return row[:LONGEST_LINE], over
    kept: list[str] = []
    room = LONGEST_LINE
    for at, part in enumerate(SGR.split(row)):
        if at % 2:
            kept.append(f"\x1b[{part}m")
            continue
        kept.append(part[:room])
        room -= len(part)
        if room <= 0:
            break
    escape = kept[-2] if len(kept) > 1 else RESET
    return "".join(kept) + ("" if escape == RESET else RESET), over


class TerminalWriter:
    """A screen while it is written on."""

    def __init__(self, screen: Screen, take_back: TakeBack) -> None:
        self.lines: list[str] = []
        self.take_back = take_back
        self.row: str = screen.rows[0]
        self.below: list[str] = list(screen.rows[:0:-1])
        self.cells: Cells | None = None
        self.column: int = screen.column
        self.style: str = screen.style
        self.width: int = screen.width
        self.over: int = screen.over
        self.touched: bool = screen.touched
        self.above: int = screen.above
        self.saved: tuple[int, int, str] = screen.saved

    def screen(self, pending: str) -> Screen:
        """The screen as it now is."""
        return Screen(
            (self._text(), *reversed(self.below)),
            self.column,
            self.style,
            self.width,
            self.over,
            self.touched,
            self.above,
            pending,
            self.saved,
        )

    # ── letters ──

    def write(self, text: str) -> None:
        """Put text that has no other escapes than those of styles, and tabs and line ends."""
        while text:
            if not self.below and self._at_end():
                return self._append(text)
            head, newline, text = text.partition("\n")
            for at, part in enumerate(SGR.split(head)):
                if at % 2:
                    self.style = restyle(self.style, part)
                else:
                    self._overtype(part)
            if newline:
                self.go_down()
                self.column = 0
        return None

    def _append(self, text: str) -> None:
        """The usual: the cursor stands at the end of all there is."""
        added = text
        if self.style or "\x1b" in text or self.row.endswith(RESET):
            text, self.style = flow(self.row, text, self.style)
            lines = text.split("\n")
        else:
            lines = text.split("\n")
            lines[0] = self.row + lines[0]
        if len(lines) == 1:
            self.width += columns(plain(added), self.width)
        else:
            self.width = columns(plain(lines[-1]))
            self.above = min(self.above + len(lines) - 1, HEIGHT - 1)
        self.column = self.width
        if self.over or max(map(len, lines)) > LONGEST_LINE:
            self._clip(lines)
        self.row = lines.pop()
        self.lines += lines

    def _clip(self, lines: list[str]) -> None:
        """Bring lines to the length that is kept; the last one is the cursor's row."""
        for at, line in enumerate(lines[:-1]):
            if self.over or len(line) > LONGEST_LINE:
                kept, over = _clipped(line)
                lines[at] = counted(kept, self.over + over)
                self.over = 0
        lines[-1], over = _clipped(lines[-1])
        self.over += over

    def _overtype(self, text: str) -> None:
        first, *tabbed = text.split("\t")
        self._put(first)
        for piece in tabbed:
            self._touch()
            self.column += TAB - self.column % TAB
            self._put(piece)

    def _put(self, text: str) -> None:
        if not text:
            return
        cells = self._touch()
        if self.column <= LONGEST_LINE:
            self.column = cells.type(self.column, text, self.style)
            cells.cut(LONGEST_LINE)
        else:
            cells.pad(LONGEST_LINE)
            self.column += columns(text)
        self.over = max(self.over, self.column - LONGEST_LINE)

    def _touch(self) -> Cells:
        """The cursor's row as cells."""
        if self.cells is None:
            self.cells = Cells(self.row)
            self.over += self.cells.cut(LONGEST_LINE)
            self.touched, self.width = True, 0
        return self.cells

    # ── rows ──

    def _text(self) -> str:
        if self.cells is None:
            return self.row
        if not self.over:
            self.cells.trim()
        return self.cells.text()

    def _enter(self, text: str) -> None:
        """The cursor comes to a row that was there before."""
        found = _MORE.search(text)
        self.over = 0
        if found and len(plain(text[: found.start()])) >= LONGEST_LINE:
            text, self.over = text[: found.start()], int(found[1].replace(",", ""))
        self.row, self.cells, self.touched, self.width = text, None, bool(text), 0

    def go_down(self) -> None:
        """The cursor leaves its row, to the one below it or to a new one."""
        self.lines.append(counted(self._text(), self.over))
        self._enter(self.below.pop() if self.below else "")
        self.above = min(self.above + 1, HEIGHT - 1)

    def go_up(self, count: int) -> int:
        """The cursor goes up as far as there are rows on the screen; returns how far."""
        count = min(count, self.above)
        for done in range(count):
            text = self.lines.pop() if self.lines else self.take_back()
            if text is None:
                self.above = 0
                return done
            self.below.append(counted(self._text(), self.over))
            self._enter(text)
            self.above -= 1
        return count

    def sink(self, count: int) -> None:
        """The cursor goes down as far as there are rows."""
        for _ in range(min(count, len(self.below))):
            self.go_down()

    def go_to(self, row: int, column: int) -> None:
        """The cursor goes to a place on the screen; a row off it stands for the last one."""
        if row < self.above:
            self.go_up(self.above - row)
        elif row >= HEIGHT:
            self.sink(HEIGHT)
        else:
            for _ in range(row - self.above):
                self.go_down()
        self.set_column(column)

    def set_column(self, column: int) -> None:
        """The cursor goes to a column of its row."""
        self.column = min(max(0, column), max(self.column, LONGEST_LINE - 1))

    def save(self) -> None:
        """Keep where the cursor is and how it writes."""
        self.saved = (self.above, self.column, self.style)

    def restore(self) -> None:
        """The cursor goes back to where it was kept."""
        row, column, self.style = self.saved
        self.go_to(row, column)

    # ── what goes ──

    def erase_right(self) -> None:
        """Nothing from the cursor on in its row."""
        if not self._at_end():
            self._touch().cut(self.column)
            self.over = min(self.over, max(0, self.column - LONGEST_LINE))

    def erase_left(self) -> None:
        """Blanks up to the cursor's column and in it."""
        if self._has_text():
            self._touch().erase(0, self.column + 1)

    def erase_row(self) -> None:
        """An empty row; the cursor stays in its column."""
        if self._has_text():
            self._touch().cut(0)
            self.over = 0

    def erase_above(self) -> None:
        """Empty rows above the cursor's."""
        for _ in range(self.go_up(self.above)):
            self.erase_row()
            self.go_down()

    def erase_all(self) -> None:
        """One empty row, the first of the screen."""
        self.go_up(self.above)
        self.below.clear()
        self.erase_row()

    def blank(self, count: int) -> None:
        """Blanks in place of the next columns."""
        if not self._at_end():
            self._touch().erase(self.column, self.column + count)

    def delete(self, count: int) -> None:
        """The next columns are gone, what follows comes nearer."""
        if not self._at_end():
            self._touch().delete(self.column, count)

    def insert(self, count: int) -> None:
        """What follows goes right."""
        if not self._at_end():
            cells = self._touch()
            cells.insert(self.column, min(count, LONGEST_LINE))
            self.over += cells.cut(LONGEST_LINE)

    def _has_text(self) -> bool:
        return self.touched or bool(self.row)

    def _at_end(self) -> bool:
        return not self.touched and self.column == self.width
