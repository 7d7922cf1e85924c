r"""Colours and styles of printed text, in one normal form. Pure.

A style is spelled as the parameters of the one escape that sets all of it: `"1;31"` is bold and
red, `""` is none. Marks come first, in order, then the colour of letters, then that behind them;
one of the 16 named colours is always spelled as such. Normalised text changes styles by
`ESC[...m` from none, by `ESC[0;...m` from another, and by `ESC[0m` back to none, where letters
differ, as late as can be, and nowhere else; so lines that look equal are equal strings.
"""

from __future__ import annotations

import re
from collections import deque
from functools import lru_cache
from itertools import zip_longest

import msgspec

RESET = "\x1b[0m"
SGR = re.compile(r"\x1b\[([0-9;:]*)m")

_LONGEST_CHANGE = 250
_ON = {1: 1, 2: 2, 3: 3, 4: 4, 7: 7, 9: 9, 21: 4, 53: 53}
_OFF = {22: (1, 2), 23: (3,), 24: (4,), 27: (7,), 29: (9,), 55: (53,)}
_BLANK = ("", " ")
_SEEN_ON_BLANKS = frozenset((4, 7, 9, 53))


class Style(msgspec.Struct, frozen=True):
    """What a style is made of.

    `marks` are bold 1, dim 2, italic 3, underlined 4, inverse 7, struck out 9, overlined 53.
    `ink` and `paper` are parameters (`"31"`, `"38;5;208"`, `"48;2;1;2;3"`), or empty.
    """

    marks: tuple[int, ...] = ()
    ink: str = ""
    paper: str = ""


@lru_cache(4096)
def read_style(style: str) -> Style:
    """The parts of a style, spelled in any way."""
    return _changed(Style(), style)


@lru_cache(4096)
def restyle(style: str, change: str) -> str:
    """The style after an escape with the parameters `change`; what is not known has no effect."""
    if len(change) > _LONGEST_CHANGE:
        return style
    now = _changed(read_style(style), change)
    return ";".join([*map(str, now.marks), *filter(None, (now.ink, now.paper))])


@lru_cache(4096)
def seen_on_blanks(style: str) -> bool:
    """Whether a space in this style looks different from one in none."""
    parts = read_style(style)
    return bool(parts.paper) or not _SEEN_ON_BLANKS.isdisjoint(parts.marks)


@lru_cache(4096)
def turn(old: str, new: str) -> str:
    """The escape between letters of two styles that differ."""
    if not new:
        return RESET
    return f"\x1b[0;{new}m" if old else f"\x1b[{new}m"


def style_of(parameters: str) -> str:
    """The style that an escape of normalised text sets."""
    return "" if parameters == "0" else parameters.removeprefix("0;")


def plain(text: str) -> str:
    """Text without its colours and styles."""
    return SGR.sub("", text) if "\x1b" in text else text


def flow(row: str, text: str, style: str) -> tuple[str, str]:
    """A normalised row continued by text with escapes and line ends; and the style that stays on.

    `style` is the one on at the end of the row. Every line of what is returned is normalised.
    """
    out, inked = _reopened(row)
    parts = SGR.split(text)
    for part, change in zip_longest(parts[::2], parts[1::2]):
        if "\n" in part and (style or inked):
            inked = _flow_on(out, part, inked, style)
        elif style == inked or part[:1] in _BLANK:
            inked = ink(out, part, inked, style)
        else:
            out += (turn(inked, style), part)
            inked = style
        if change is not None:
            style = restyle(style, change)
    if inked:
        out.append(RESET)
    return "".join(out), style


def _flow_on(out: list[str], text: str, inked: str, style: str) -> str:
    """Add lines in a style, each of them reset at its end; returns what the last one ends in."""
    first, *others = text.split("\n") if style else text.split("\n", 1)
    inked = ink(out, first, inked, style)
    for line in others:
        out.append(RESET + "\n" if inked else "\n")
        inked = ink(out, line, "", style)
    return inked


def ink(out: list[str], text: str, inked: str, style: str) -> str:
    """Add text in a style to what ends in the style `inked`; returns the style it then ends in.

    Where blanks look the same in both, the style changes at the first letter that is none.
    """
    if style != inked:
        if text[:1] == " " and not seen_on_blanks(inked) and not seen_on_blanks(style):
            letters = text.lstrip(" ")
            out.append(text[: len(text) - len(letters)])
            text = letters
        if not text:
            return inked
        out.append(turn(inked, style))
    out.append(text)
    return style


def _reopened(row: str) -> tuple[list[str], str]:
    """A normalised row without the reset at its end, and the style it then ends in."""
    if not row.endswith(RESET):
        return [row], ""
    start = row.rfind("\x1b[", 0, -len(RESET))
    found = SGR.match(row, start)
    assert found, "normalised text opens what it resets"
    return [row[: -len(RESET)]], style_of(found[1])


# ── parameters ──────────────────────────────────────────────────────────────────────────


def _changed(style: Style, change: str) -> Style:
    marks, ink, paper = set(style.marks), style.ink, style.paper
    waiting = deque(change.split(";"))
    while waiting:
        head, *detail = waiting.popleft().split(":")
        code = int(head or 0)
        if code == 0:
            marks, ink, paper = set[int](), "", ""
        elif code in (38, 48, 58):
            colour = _colour(detail) if detail else _colour(_taken(waiting))
            if colour and code == 38:
                ink = _spelled(colour, 0)
            elif colour and code == 48:
                paper = _spelled(colour, 10)
        elif 30 <= code <= 39 or 90 <= code <= 97:
            ink = "" if code == 39 else str(code)
        elif 40 <= code <= 49 or 100 <= code <= 107:
            paper = "" if code == 49 else str(code)
        else:
            _mark(marks, code, detail)
    return Style(tuple(sorted(marks)), ink, paper)


def _mark(marks: set[int], code: int, detail: list[str]) -> None:
    if code == 4 and detail[:1] == ["0"]:
        code = 24
    if code in _ON:
        marks.add(_ON[code])
    marks.difference_update(_OFF.get(code, ()))


def _taken(waiting: deque[str]) -> list[str]:
    """The parameters of a colour, where they are separated as the others are."""
    kind = waiting.popleft() if waiting else ""
    count = {"5": 1, "2": 3}.get(kind, 0)
    return [kind, *(waiting.popleft() for _ in range(min(count, len(waiting))))]


def _colour(detail: list[str]) -> tuple[int, ...]:
    """`5, n` or `2, [space,] r, g, b` as numbers, one or three; nothing where they are not right."""
    kind, *rest = detail
    if kind == "2" and len(rest) > 3:
        rest = rest[1:4]
    if len(rest) != {"5": 1, "2": 3}.get(kind):
        return ()
    found = tuple(int(number) if number.isdecimal() else 0 for number in rest)
    return found if max(found) < 256 else ()


def _spelled(colour: tuple[int, ...], behind: int) -> str:
    """A colour in its one spelling; `behind` is 10 for that behind letters."""
    if len(colour) == 3:
        return ";".join(map(str, (38 + behind, 2, *colour)))
    (number,) = colour
    if number >= 16:
        return f"{38 + behind};5;{number}"
    return str(number + (30 if number < 8 else 82) + behind)
