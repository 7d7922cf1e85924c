"""Printed lines with colours as HTML that can be read on light and dark pages. Pure.

A line is normalised text as `view/sgr` has it. Letters with nothing behind them get a colour of a
middle lightness, those with a colour behind them their own or, if that is too near, black or white.
"""

from __future__ import annotations

import html
from functools import lru_cache

from skyward_nb.view.sgr import SGR, TextStyle, plain, read_style, style_of

__all__ = ["coloured", "plain"]

RGB = tuple[int, int, int]

LEAST_CONTRAST = 3.0
# Relative luminance between which letters can be read on white and on the darkest of dark pages.
DARKEST, LIGHTEST = 0.145, 0.295

_BLACK, _WHITE = (0, 0, 0), (255, 255, 255)
_NAMED: tuple[RGB, ...] = (
    (0x3E, 0x42, 0x4D),
    (0xD7, 0x32, 0x29),
    (0x00, 0x8A, 0x3E),
    (0xA8, 0x76, 0x00),
    (0x20, 0x74, 0xC8),
    (0xA8, 0x4F, 0xC0),
    (0x00, 0x86, 0x8E),
    (0xC5, 0xC1, 0xB4),
    (0x70, 0x75, 0x80),
    (0xFF, 0x55, 0x4D),
    (0x1F, 0xB5, 0x5A),
    (0xDB, 0xA2, 0x00),
    (0x4B, 0xA3, 0xFF),
    (0xDC, 0x7B, 0xF0),
    (0x00, 0xB8, 0xC4),
    (0xF5, 0xF5, 0xF5),
)
_PAGE, _LETTERS = (0xF5, 0xF5, 0xF5), (0x5A, 0x5F, 0x69)
_TAGS = {1: "b", 3: "i", 4: "u", 9: "s"}


def coloured(line: str) -> str:
    """A line as HTML: escaped, its colours and styles as tags that need no style sheet."""
    text = html.escape(line, quote=False)
    if "\x1b" not in text:
        return text
    out: list[str] = []
    before, after = "", ""
    for at, part in enumerate(SGR.split(text)):
        if at % 2:
            before, after = _tags(style_of(part))
        elif part:
            out.append(f"{before}{part}{after}")
    return "".join(out)


@lru_cache(4096)
def _tags(style: str) -> tuple[str, str]:
    """What stands before and after text of a style."""
    parts = read_style(style)
    rules = _colours(parts)
    if 2 in parts.marks:
        rules.append("opacity:.75")
    names = [name for mark, name in _TAGS.items() if mark in parts.marks]
    before = "".join(f"<{name}>" for name in names)
    after = "".join(f"</{name}>" for name in reversed(names))
    if rules:
        before, after = f'{before}<span style="{";".join(rules)}">', f"</span>{after}"
    return before, after


def _colours(style: TextStyle) -> list[str]:
    ink, paper = _rgb(style.ink), _rgb(style.paper)
    if 7 in style.marks:
        ink, paper = paper or _PAGE, ink or _LETTERS
    if paper:
        return [f"color:{_hex(_on(paper, ink))}", f"background-color:{_hex(paper)}"]
    return [f"color:{_hex(_readable(ink))}"] if ink else []


def _rgb(colour: str) -> RGB | None:
    """The colour that parameters of an escape name, those behind letters as those of letters."""
    if not colour:
        return None
    first, *numbers = map(int, colour.split(";"))
    if len(numbers) == 4:
        return numbers[1], numbers[2], numbers[3]
    if numbers:
        number = numbers[1]
        return _NAMED[number] if number < len(_NAMED) else _of_palette(number)
    return _NAMED[first % 10 + (8 if first >= 90 else 0)]


def _of_palette(number: int) -> RGB:
    """Of the 256 colours one after the named ones: a cube of 6 steps, then 24 greys."""
    if number >= 232:
        grey = 8 + 10 * (number - 232)
        return grey, grey, grey
    red, green, blue = (
        (number - 16) // step % 6 * 40 + (55 if (number - 16) // step % 6 else 0)
        for step in (36, 6, 1)
    )
    return red, green, blue


def _on(paper: RGB, ink: RGB | None) -> RGB:
    """The colour of letters on another: as asked for, where it can be read, or else nearly."""
    light = not ink or luminance(ink) > LIGHTEST
    wanted = (ink or _WHITE, *((_WHITE, _BLACK) if light else (_BLACK, _WHITE)))
    return next(colour for colour in wanted if contrast(colour, paper) >= LEAST_CONTRAST)


def _readable(ink: RGB) -> RGB:
    """A colour made darker or lighter until it can be read on white and on near black."""
    found = luminance(ink)
    aim = min(max(found, DARKEST), LIGHTEST)
    if aim < found:
        return _mixed(ink, _BLACK, aim)
    return _mixed(ink, _WHITE, aim) if aim > found else ink


def _mixed(ink: RGB, other: RGB, aim: float) -> RGB:
    """As much of another colour in a colour as brings its luminance to `aim`."""
    low, high = 0.0, 1.0
    for _ in range(12):
        share = (low + high) / 2
        mixed = _blend(ink, other, share)
        if (luminance(mixed) < aim) == (luminance(other) < aim):
            high = share
        else:
            low = share
    return _blend(ink, other, high)


def _blend(ink: RGB, other: RGB, share: float) -> RGB:
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(ink, other, strict=True))
    return red, green, blue


def luminance(colour: RGB) -> float:
    """How light a colour is, 0 to 1, as WCAG 2 reckons it."""
    red, green, blue = (
        part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4
        for part in colour
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: RGB, other: RGB) -> float:
    """How well two colours can be told apart, 1 to 21, as WCAG 2 reckons it."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _hex(colour: RGB) -> str:
    return "#" + "".join(f"{part:02x}" for part in colour)
