"""Ranks that are behind the others, or took longer, in words. Pure."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from skyward_nb.protocol.events import Progress
from skyward_nb.view.run_view import RankView
from skyward_nb.words.ranks import spell_ranks

_BEHIND = 0.1
"""A rank is behind that lacks so much of what most ranks have done, and two items at least,"""
_SECONDS = 0.5
"""and as much as they do in this time: loops tell only ten times a second how far they are."""
_LONGER = 1.25
"""A rank took longer whose time is so many times that of most ranks, and a second more at least."""


def behind(ranks: Mapping[int, RankView]) -> dict[int, str]:
    """Of ranks that are well behind in the loop that all are in: how far, in words."""
    loops: dict[tuple[str, float | None], dict[int, Progress]] = {}
    for rank, now in ranks.items():
        bar = current(now)
        if bar is not None:
            loops.setdefault((bar.text, bar.total), {})[rank] = bar
    found: dict[int, str] = {}
    for bars in loops.values():
        if len(bars) < 2:
            continue
        all_done = sorted(bar.done for bar in bars.values())
        rates = sorted(map(_rate, bars.values()))
        for rank, bar in bars.items():
            most = _median_without(bar.done, all_done)
            rate = _median_without(_rate(bar), rates)
            lack = most - bar.done
            if lack >= max(2, _BEHIND * most, _SECONDS * rate) and not bar.over:
                found[rank] = f"{lack:,.0f} {_many(bar.unit)} behind"
    return found


def _rate(bar: Progress) -> float:
    return bar.stepped / (bar.seconds or 1)


def _median_without(one: float, ordered: Sequence[float]) -> float:
    """The median of the others of these, which are in their order."""
    at, count = bisect_left(ordered, one), len(ordered) - 1
    low, high = ((count - 1) // 2, count // 2)
    return (ordered[low + (low >= at)] + ordered[high + (high >= at)]) / 2


def imbalance(ranks: Mapping[int, RankView], began: float) -> str:
    """A sentence on ranks that took well longer than the others to the end; nothing where one stood at a breakpoint."""
    took = {
        rank: now.ended - began
        for rank, now in ranks.items()
        if now.ended is not None and now.state == "done"
    }
    if len(took) < 2 or max(took.values()) - min(took.values()) <= 1:
        return ""
    if any(now.halted for now in ranks.values()):
        return ""
    usual = statistics.median_low(took.values())
    slow = [rank for rank, s in took.items() if s > usual * _LONGER and s - usual > 1]
    if not slow:
        return ""
    longest = max(took[rank] for rank in slow)
    those = f"rank{'s' * (len(slow) > 1)} {spell_ranks(slow)}"
    return f"{those} took {longest / usual:.1f} times as long as the others ({longest:.1f} s, {usual:.1f} s)"


def current(now: RankView) -> Progress | None:
    """The outermost loop a rank is in, or else the last one it was in."""
    outer = [bar for bar in now.bars if not bar.level] or list(now.bars)
    going = [bar for bar in outer if not bar.over]
    return (going or outer or [None])[-1]


def _many(unit: str) -> str:
    return "steps" if unit == "it" else unit
