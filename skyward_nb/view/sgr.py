r"""Colours and styles of printed text, in one normal form. Pure.

A style is the parameters of the one escape that sets all of it: `"1;31"` is bold and red, `""` is
none; marks come first, in order, then the colour of letters, then that behind them. A row is runs
of text, each with its style. As text it changes styles by `ESC[...m` from none, by `ESC[0;...m`
from another, and by `ESC[0m` back to none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice

import msgspec

RESET = "\x1b[0m"
SGR = re.compile(r"\x1b\[([0-9;]{0,100})m")

_MARKS = (1, 2, 3, 4, 7, 9)
_OFF = {22: (1, 2), 23: (3,), 24: (4,), 27: (7,), 29: (9,)}

Run = tuple[str, str]
"""A style, and text in it."""


class TextStyle(msgspec.Struct, frozen=True):
    """What a style is made of.

    `marks` are bold 1, dim 2, italic 3, underlined 4, inverse 7, struck out 9.
    `ink` and `paper` are parameters (`"31"`, `"38;5;208"`, `"48;2;1;2;3"`), or empty.
    """

    marks: tuple[int, ...] = ()
    ink: str = ""
    paper: str = ""


@lru_cache(4096)
def read_style(style: str) -> TextStyle:
    """The parts of a style, spelled in any way; what is not known has no effect."""
    marks, ink, paper = set[int](), "", ""
    codes = (int(code or 0) for code in style.split(";"))
    for code in codes:
        if code == 0:
            marks, ink, paper = set[int](), "", ""
        elif code in _MARKS:
            marks.add(code)
        elif code in (38, 48, 58):
            kind = next(codes, 0)
            colour = tuple(islice(codes, {5: 1, 2: 3}.get(kind, 0)))
            spelled = ";".join(map(str, (code, kind, *colour)))
            if len(colour) != {5: 1, 2: 3}.get(kind) or max(colour) > 255:
                continue
            ink, paper = (spelled if code == 38 else ink), (spelled if code == 48 else paper)
        elif 30 <= code <= 39 or 90 <= code <= 97:
            ink = "" if code == 39 else str(code)
        elif 40 <= code <= 49 or 100 <= code <= 107:
            paper = "" if code == 49 else str(code)
        else:
            marks.difference_update(_OFF.get(code, ()))
    return TextStyle(tuple(sorted(marks)), ink, paper)


@lru_cache(4096)
def restyle(style: str, change: str) -> str:
    """The style after an escape with the parameters `change`."""
    now = read_style(f"{style};{change}" if style else change)
    return ";".join([*map(str, now.marks), *filter(None, (now.ink, now.paper))])


def style_of(parameters: str) -> str:
    """The style that an escape of normalised text sets."""
    return "" if parameters == "0" else parameters.removeprefix("0;")


def plain(text: str) -> str:
    """Text without its colours and styles."""
    return SGR.sub("", text) if "\x1b" in text else text


def runs_of(text: str) -> list[Run]:
    """The runs of normalised text."""
    if "\x1b" not in text:
        return [("", text)] if text else []
    first, *parts = SGR.split(text)
    pairs = [("", first), *zip(map(style_of, parts[::2]), parts[1::2], strict=True)]
    return [run for run in pairs if run[1]]


def text_of(runs: Sequence[Run]) -> str:
    """Runs as normalised text."""
    if len(runs) < 2 and not (runs and runs[0][0]):
        return runs[0][1] if runs else ""
    out: list[str] = []
    now = ""
    for style, text in runs:
        if style != now:
            out.append(f"\x1b[0;{style}m" if now and style else f"\x1b[{style or 0}m")
            now = style
        out.append(text)
    return "".join([*out, RESET] if now else out)
