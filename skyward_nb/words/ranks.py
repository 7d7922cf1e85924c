"""Sets of ranks as people write them: `all`, `head`, `0,2-3`, `::2`; and `[0-3]` back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from skyward_nb.words.errors import OptionError

T = TypeVar("T")


def parse_ranks(option: str, text: str, world_size: int) -> tuple[int, ...]:
    """The ranks of a `text`, ascending; raises `OptionError` with the mistake."""
    if text == "all":
        return tuple(range(world_size))
    if text == "head":
        return (0,)
    chosen: set[int] = set()
    for part in text.split(","):
        chosen |= _part(option, text, part.strip(), world_size)
    if not chosen:
        raise OptionError(option, f"{option}={text} names no rank of {world_size}")
    return tuple(sorted(chosen))


def _part(option: str, text: str, part: str, world_size: int) -> set[int]:
    try:
        if ":" in part:
            bounds = [int(bound) if bound else None for bound in part.split(":")]
            return set(range(world_size)[slice(*bounds)])
        first, dash, last = part.partition("-")
        begin, end = int(first), int(last if dash else first)
    except (ValueError, TypeError):
        raise OptionError(
            option, f"{option}={text}: write all, head, ranks as in 0,2-3, or a slice as in ::2"
        ) from None
    if not 0 <= begin <= end < world_size:
        last_rank = world_size - 1
        raise OptionError(option, f"{option}={text}: the pool has ranks 0 to {last_rank}")
    return set(range(begin, end + 1))


def shown_ranks(option: str, text: str, world_size: int) -> frozenset[int]:
    """The ranks whose output is shown: those of `parse_ranks`, or none."""
    return frozenset() if text == "none" else frozenset(parse_ranks(option, text, world_size))


def spell_ranks(ranks: Iterable[int]) -> str:
    """Ranks as short text: `0-3,5`."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def count_ranks(ranks: Iterable[int]) -> str:
    """Ranks in a sentence: `rank 2`, `ranks 0-3`."""
    chosen = list(ranks)
    return f"rank{'s' * (len(chosen) != 1)} {spell_ranks(chosen)}"


def ranks_by(items: Mapping[int, T]) -> dict[T, list[int]]:
    """Ranks by their common item, in the order of the lowest rank of each."""
    found: dict[T, list[int]] = {}
    for rank in sorted(items):
        found.setdefault(items[rank], []).append(rank)
    return found
