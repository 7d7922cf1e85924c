"""The bytes of a value that is sent: all at hand, or still arriving from another machine."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Protocol

from skyward_nb.store.blobs import Buffer
from skyward_nb.store.content_store import no_tick


class ValueSource(Protocol):
    """A value of `size` bytes that may still be arriving."""

    size: int

    def views(self, start: int, stop: int, tick: Callable[[], None]) -> Iterator[memoryview]:
        """The bytes from `start` to before `stop`; raises OSError where they never come."""
        ...


class ValueParts:
    """A value in several buffers, read as one."""

    def __init__(self, parts: Sequence[Buffer]) -> None:
        self._views = [memoryview(part).cast("B") for part in parts if memoryview(part).nbytes]
        self._ends = list(accumulate(view.nbytes for view in self._views))
        self.size: int = self._ends[-1] if self._ends else 0

    def views(
        self, start: int, stop: int, tick: Callable[[], None] = no_tick
    ) -> Iterator[memoryview]:
        """The bytes from `start` to before `stop`, without a copy."""
        del tick  # they are there
        index = bisect_right(self._ends, start)
        while start < stop:
            view, end = self._views[index], self._ends[index]
            until = min(stop, end)
            yield view[start - end + view.nbytes : until - end + view.nbytes]
            start, index = until, index + 1
