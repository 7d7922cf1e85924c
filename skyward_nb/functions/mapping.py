"""A map over many items: handed out in batches, few items at first, until it is known how long one takes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from skyward_nb.functions.packed_calls import PackedCall, name_of, pack_batch
from skyward_nb.functions.rank_slots import StopsBy
from skyward_nb.functions.runner import Runner
from skyward_nb.show.display import RunDisplay

_FIRST_BATCH = 1
_NEWS = 0.1
"""Seconds after which a batch of some rank should have ended, so that there is something new to tell."""
_BATCH = 0.5
"""Seconds that a batch may take at most, however many ranks end others meanwhile."""
_OF_TIMEOUT = 0.25
"""The part of `timeout` that a batch is expected to take at most: it may take longer than was thought."""
_LEAST = 0.002
"""Seconds that it should take at least, so that little is lost by handing it out."""


def run_map(
    runner: Runner,
    function: Callable[..., Any],
    items: Sequence[tuple[Any, ...]],
    ranks: tuple[int, ...],
    timeout: float | None,
    stops_by: StopsBy = lambda _: None,
) -> list[Any]:
    """The value of a function for each of these tuples of arguments, in order; `stops_by` as of `Runner.run_each`."""
    began = time.monotonic()
    values: list[Any] = [None] * len(items)
    sizes = BatchSizes(len(items), len(ranks), _speed_of(runner, function), timeout)
    starts: list[int] = []
    done = 0

    def batches() -> Iterator[PackedCall]:
        at = 0
        while at < len(items):
            size = sizes.next(at)
            batch = pack_batch(function, items[at : at + size], at, timeout)
            starts.append(at)
            yield batch
            at += size

    def ended(display: RunDisplay) -> None:
        display.loop(done, len(items), time.monotonic() - began)

    title = f"{name_of(function)}() of {len(items):,} items"
    for number, (each, seconds) in runner.run_each(batches(), ranks, title, ended, stops_by):
        values[starts[number] : starts[number] + len(each)] = each
        done += len(each)
        sizes.took(seconds / len(each))
    if sizes.each is not None:
        with contextlib.suppress(TypeError):  # it cannot be held weakly
            runner.speeds[function] = sizes.each
    return values


def _speed_of(runner: Runner, function: Callable[..., Any]) -> float | None:
    with contextlib.suppress(TypeError):
        return runner.speeds.get(function)
    return None


class BatchSizes:
    """How many items go into a batch: few until it is known how long `each` takes, in seconds."""

    def __init__(
        self, items: int, ranks: int, each: float | None = None, timeout: float | None = None
    ) -> None:
        self._items = items
        self._ranks = ranks
        self._seconds = min(_NEWS * ranks, _BATCH)
        if timeout is not None:
            self._seconds = min(self._seconds, _OF_TIMEOUT * timeout)
        self.each = each

    def next(self, at: int) -> int:
        """The number of items of the next batch."""
        left = self._items - at
        if self.each is None:
            return min(left, _FIRST_BATCH)
        rate = 1 / max(self.each, 1e-7)
        # Less and less, so that nobody waits long for the last one; but not for next to nothing.
        least = min(int(_LEAST * rate), -(-self._items // self._ranks))
        share = max(-(-left // (2 * self._ranks)), least)
        return max(1, min(left, share, int(self._seconds * rate)))

    def took(self, seconds: float) -> None:
        """So long an item of a batch took."""
        self.each = seconds if self.each is None else (self.each + seconds) / 2
