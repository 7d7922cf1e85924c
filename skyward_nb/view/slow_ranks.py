"""Which ranks of a synchronous loop compute longer than the others, from how much they wait. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from skyward_nb.view.run_view import MOST_WINDOWS, RankView
from skyward_nb.words.ranks import count_ranks

_LEAST_WINDOWS = 6
"""The windows of a rank that say something."""
_LONGER = 1.5
"""A rank is slow that computes so many times as long as most ranks do,"""
_MOSTLY = 0.75
"""and in this part of its windows: one that others' load stops now and then is not."""
_OF_LONGEST = 0.5
"""and so much of what the slowest computes: one that itself waits for most of its time holds nobody up."""
_LEAST = 0.02
"""The least share that is told apart from none."""


def slow_in(ranks: Mapping[int, RankView]) -> dict[int, float]:
    """The slow ranks of a run, as `slow_ranks` has them; none where ranks stood at a breakpoint, or waited for one."""
    if any(now.halted for now in ranks.values()):
        return {}
    return slow_ranks({rank: now.waits for rank, now in ranks.items()})


def slow_ranks(waits: Mapping[int, Sequence[float]]) -> dict[int, float]:
    """How many times as long as most ranks the slow ones compute.

    `waits` has the shares of a rank's time, window by window, that it waited in collectives.
    """
    own = {
        rank: [max(_LEAST, 1 - share) for share in shares[-MOST_WINDOWS:]]
        for rank, shares in waits.items()
        if len(shares) >= _LEAST_WINDOWS
    }
    return _longer(own)


def slow_in_all(waits: Mapping[int, float]) -> dict[int, float]:
    """The same of ranks of which one share is known, that of a whole run."""
    return _longer({rank: [max(_LEAST, 1 - share)] for rank, share in waits.items()})


def _longer(own: Mapping[int, Sequence[float]]) -> dict[int, float]:
    if len(own) < 2:
        return {}
    typical = {rank: statistics.median(shares) for rank, shares in own.items()}
    most = statistics.median_low(typical.values())
    least = max(_LONGER * most, _OF_LONGEST * max(typical.values()))
    found: dict[int, float] = {}
    for rank, shares in own.items():
        longer = sum(share >= least for share in shares)
        if typical[rank] >= least and longer >= _MOSTLY * len(shares):
            found[rank] = typical[rank] / most
    return found


def slow_words(slow: Mapping[int, float], *, over: bool = False) -> str:
    """A sentence on these ranks, in a loop that goes on or is `over`; "" without any."""
    if not slow:
        return ""
    computes, wait = "compute" if len(slow) > 1 else "computes", "wait"
    if over:
        computes, wait = "computed", "waited"
    longest = times(max(slow.values()))
    return f"{count_ranks(sorted(slow))} {computes} {longest} as long as the others, which {wait} in collectives"


def times(ratio: float) -> str:
    """A ratio in words: `6 ×`, `1.8 ×`."""
    return f"{ratio:.0f} ×" if ratio >= 3 else f"{ratio:.1f} ×"
