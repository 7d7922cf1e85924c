"""What is printed acts as in a terminal. (Being built.)"""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Screen(msgspec.Struct, frozen=True):
    """Of one stream of one rank, what is at and below the cursor."""

    rows: tuple[str, ...] = ("",)


def feed(
    screen: Screen, text: str, take_back: Callable[[], str | None]
) -> tuple[Screen, list[str]]:
    """The screen after `text`, and the lines that were ended by it, in order."""
    *lines, rest = (screen.rows[0] + text).split("\n")
    return Screen((rest[-2000:],)), lines
