r"""A row of a terminal as cells, while it is typed over. Pure.

One cell per column: the letter with the marks combined with it, and its style. A wide letter has a
second cell with nothing in it, a tab is blanks. A blank in a style that does not show on blanks has
none. Read back from its text, a row is the same.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import groupby

from skyward_nb.pool.sgr import RESET, SGR, ink, seen_on_blanks, style_of

TAB = 8
MOST_MARKS = 16

# Latin, Greek, Cyrillic, dashes and quotes, arrows, what boxes and bars are drawn with.
_NARROW = re.compile(
    "[ -~\xa0-\xac\xae-\u02ff\u0370-\u0482\u048a-\u058f\u2010-\u2027\u2190-\u2319\u2500-\u25fc]*"
)


@lru_cache(8192)
def width(letter: str) -> int:
    """How many columns a letter takes: 2 for wide ones, 0 for marks combined with it."""
    kind = unicodedata.category(letter)
    if kind in ("Mn", "Me", "Cf") and letter != "\xad":
        return 0
    if kind == "Cn":  # newer than the tables of this Python: pictures, as likely as not
        return 2 if "\U0001f300" <= letter <= "\U0001faff" else 1
    if "\u1160" <= letter <= "\u11ff":  # vowels and finals of a Korean syllable in parts
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def columns(text: str, at: int = 0) -> int:
    """How many columns text without escapes takes that begins in column `at`."""
    if "\t" not in text:
        return _wide(text)
    first, *tabbed = text.split("\t")
    end = at + _wide(first)
    for piece in tabbed:
        end += TAB - end % TAB + _wide(piece)
    return end - at


def _wide(text: str) -> int:
    return len(text) if _is_narrow(text) else sum(map(width, text))


def _is_narrow(text: str) -> bool:
    """Whether each letter is known to take one column; quick."""
    return text.isascii() or _NARROW.fullmatch(text) is not None


class Cells:
    """The letters and styles of one row, by column."""

    __slots__ = ("letters", "styles")

    def __init__(self, text: str = "") -> None:
        self.letters: list[str] = []
        self.styles: list[str] = []
        style = ""
        for at, part in enumerate(SGR.split(text)):
            if at % 2:
                style = style_of(part)
                continue
            for number, piece in enumerate(part.split("\t")):
                if number:
                    self.pad(len(self) + TAB - len(self) % TAB)
                self.type(len(self.letters), piece, style)

    def __len__(self) -> int:
        return len(self.letters)

    def text(self) -> str:
        """The row as normalised text."""
        if not any(self.styles):
            return "".join(self.letters)
        out: list[str] = []
        inked, at = "", 0
        for style, same in groupby(self.styles):
            end = at + len(list(same))
            inked = ink(out, "".join(self.letters[at:end]), inked, style)
            at = end
        if inked:
            out.append(RESET)
        return "".join(out)

    def trim(self) -> None:
        """Drop the blanks at the end."""
        while self.letters and self.letters[-1] == " " and not self.styles[-1]:
            self.letters.pop()
            self.styles.pop()

    def type(self, at: int, text: str, style: str) -> int:
        """Put text without escapes, tabs and line ends; returns the column after it."""
        if _is_narrow(text):
            return self.put(at, list(text), style)
        start = 0
        while start < len(text) and not width(text[start]):
            self._combine(at, text[start])
            start += 1
        return self.put(at, _split(text[start:]), style)

    def put(self, at: int, letters: list[str], style: str) -> int:
        """Put letters, already split into cells; returns the column after them."""
        end = at + len(letters)
        self.pad(at)
        self._part(at)
        self._part(end)
        self.letters[at:end] = letters
        if style and not seen_on_blanks(style):
            self.styles[at:end] = ["" if letter[:1] == " " else style for letter in letters]
        else:
            self.styles[at:end] = [style] * len(letters)
        return end

    def pad(self, at: int) -> None:
        """Blanks up to column `at`, if the row ends before it."""
        missing = at - len(self.letters)
        if missing > 0:
            self.letters += [" "] * missing
            self.styles += [""] * missing

    def cut(self, at: int) -> int:
        """Nothing from column `at` on; returns how many letters are gone."""
        self._part(at)
        gone = len(list(filter(None, self.letters[at:])))
        del self.letters[at:]
        del self.styles[at:]
        return gone

    def erase(self, start: int, stop: int) -> None:
        """Blanks from column `start` to before `stop`, as far as there is something."""
        stop = min(stop, len(self.letters))
        if start < stop:
            self.put(start, [" "] * (stop - start), "")

    def delete(self, at: int, count: int) -> None:
        """Take columns out; what follows moves left."""
        self._part(at)
        self._part(at + count)
        del self.letters[at : at + count]
        del self.styles[at : at + count]

    def insert(self, at: int, count: int) -> None:
        """Put blanks in; what follows moves right, but not the blanks at the end."""
        self.trim()
        if at < len(self.letters):
            self._part(at)
            self.letters[at:at] = [" "] * count
            self.styles[at:at] = [""] * count

    def _combine(self, at: int, mark: str) -> None:
        """A mark is added to the letter before column `at`."""
        self.pad(at)
        base = at - 1 if at and self.letters[at - 1] else at - 2
        if base >= 0:
            self.letters[base] = _marked(self.letters[base], mark)

    def _part(self, at: int) -> None:
        """Make a wide letter that reaches over the border before column `at` blanks."""
        if at < len(self.letters) and not self.letters[at]:
            self.letters[at - 1 : at + 1] = "  "
            if not seen_on_blanks(self.styles[at]):
                self.styles[at - 1 : at + 1] = "", ""


def _split(text: str) -> list[str]:
    """Text as cells; it does not begin with a mark."""
    cells: list[str] = []
    for letter in text:
        wide = width(letter)
        if wide:
            cells += (letter,) if wide == 1 else (letter, "")
        else:
            base = -1 if cells[-1] else -2
            cells[base] = _marked(cells[base], letter)
    return cells


def _marked(letter: str, mark: str) -> str:
    return letter + mark if len(letter) <= MOST_MARKS else letter
