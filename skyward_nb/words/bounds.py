"""Shortens texts of users to a size for notebooks: the head, the tail, and the size of the rest. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from skyward_nb.words.errors import spell_size

MESSAGE = 10_000
"""Most bytes of an exception's message."""
TRACEBACK = 100_000
"""Most bytes of a traceback."""
SHOWN = 4000
SHOWN_LINES = 12
"""Most characters and lines of a repr."""


def cut(text: str, most: int, most_lines: int, *, at_least: bool = False) -> str:
    """The first lines and characters of a text, with a word about the others."""
    suffix = " at least" if at_least else ""
    lines = text[: most + 1].split("\n", most_lines)
    if len(lines) > most_lines:
        begun = "\n".join(lines[:most_lines])
        more = text.count("\n", len(begun)) - text.endswith("\n")
        if more > 0:
            return f"{begun}\n… {more:,} more lines{suffix}"
    more = len(text) - most
    if more > 0:
        return f"{text[:most]} … {more:,} more characters{suffix}"
    return f"{text} … more" if at_least else text


def bounded(text: str, most: int = MESSAGE) -> str:
    """The text in at most about `most` bytes: its head, its tail, and the size of the part between."""
    if len(text) * 4 <= most:
        return text
    raw = text.encode("utf-8", "backslashreplace")
    if len(raw) <= most:
        return text
    head = raw[: most * 3 // 4].decode("utf-8", "ignore")
    tail = raw[-(most // 4) :].decode("utf-8", "ignore")
    return f"{head}\n… {spell_size(len(raw) - most)} left out …\n{tail}"


def bounded_lines(
    lines: Iterable[str], most: int = TRACEBACK, most_each: int = MESSAGE
) -> tuple[str, ...]:
    """Lines, or blocks of them, in at most about `most` bytes; the last ones are the last to go.

    Of a traceback, that is the place where it was raised, and the exception itself.
    """
    short = [bounded(line, most_each) for line in lines]
    sizes = [len(line.encode("utf-8", "backslashreplace")) for line in short]
    if sum(sizes) <= most:
        return tuple(short)
    head, tail = _ends(sizes, most)
    gone = sum(sizes[head : len(sizes) - tail])
    left_out = f"… {spell_size(gone)} left out …"
    return (*short[:head], left_out, *short[len(short) - tail :])


def _ends(sizes: list[int], most: int) -> tuple[int, int]:
    """How many from the start and from the end fit, a quarter of the room being the start's."""
    head = tail = 0
    room = most // 4
    while head < len(sizes) and sizes[head] <= room:
        room -= sizes[head]
        head += 1
    room = most - most // 4
    while tail < len(sizes) - head and sizes[-1 - tail] <= room:
        room -= sizes[-1 - tail]
        tail += 1
    return head, tail
