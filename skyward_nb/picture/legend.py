"""Colours and dashes of curves, and the rows of words that say whose is which. Pure."""

from __future__ import annotations

from collections.abc import Mapping

# Each has a contrast of 3 or more on white and on near-black; what is text, of 4. Eyes of any kind
# tell the first four from one another by colour, the last four, too, and the two fours by dashes.
COLOURS = (
    "#c12853", "#379cc3", "#af831c", "#783ce6",
    "#e76d17", "#27a274", "#cb65c7", "#4b6872",
)  # fmt: skip
DASHES = ("", "", "", "", "10 5", "10 5", "10 5", "10 5")
# The mean is known by its strength, whatever its colour looks like.
MEAN = "#2f74e0"
TEXT = "#797979"

FONT = 20
LETTER = 12.4
ROW = 28
_MARGIN = 8


def stroke(colour: int) -> str:
    """The attributes of a rank's line."""
    dashes = f' stroke-dasharray="{DASHES[colour]}"' if DASHES[colour] else ""
    return f'stroke="{COLOURS[colour]}" stroke-width="2"{dashes}'


def legend(colours: Mapping[int, int], remark: str, across: int) -> list[str]:
    """Rows that name ranks by their colours, and a remark at the right; no row if there is neither."""
    items: list[tuple[str, float]] = []
    if colours:
        items = [_item(stroke(colour), str(rank)) for rank, colour in colours.items()]
        items = [
            ("<text>rank</text>", 4 * LETTER + 8),
            *items,
            _item(f'stroke="{MEAN}" stroke-width="4"', "mean"),
        ]
    rows: list[list[str]] = []
    left = room = across - 2 * _MARGIN
    for drawing, width in items:
        if left + width > room:
            rows.append([])
            left = 0
        place = f"translate({round(left) + _MARGIN} {len(rows) * ROW - _MARGIN})"
        rows[-1].append(f'<g transform="{place}">{drawing}</g>')
        left += width
    if remark:
        if left + len(remark) * LETTER > room:
            rows.append([])
        base = len(rows) * ROW - _MARGIN
        rows[-1].append(f'<text x="{across - 8}" y="{base}" text-anchor="end">{remark}</text>')
    return ["".join(row) for row in rows]


def _item(line: str, text: str) -> tuple[str, float]:
    """A line and what it stands for, with its width."""
    return f'<path d="M0-7h26" {line}/><text x="32">{text}</text>', 32 + len(text) * LETTER + 12
