"""When to look where the ranks of a run are that makes no progress. Pure: a caller has the clock and asks the ranks."""

from __future__ import annotations

from collections.abc import Iterable

from skyward_nb.protocol.events import Stack

FIRST_LOOK = 10.0
"""Seconds without progress after which ranks are asked; after twice as long again, and so on."""


class HangWatch:
    """Watches one run from `now` on; all times are in seconds of one clock."""

    def __init__(self, now: float) -> None:
        self._asked: frozenset[int] = frozenset()
        self._stacks: dict[int, str] = {}
        self.progressed(now)

    def progressed(self, now: float) -> None:
        """A rank showed something, or ended: what was asked before is no longer of interest."""
        self._since, self._due = now, now + FIRST_LOOK
        self._asked = frozenset()

    def ranks_to_ask(self, running: Iterable[int], now: float) -> tuple[int, ...]:
        """Those of the `running` ranks whose stacks are wanted now: all, or none."""
        if now < self._due:
            return ()
        self._due = now + max(FIRST_LOOK, now - self._since)
        self._asked, self._stacks = frozenset(running), {}
        return tuple(sorted(self._asked))

    def found(self, stack: Stack) -> dict[int, str] | None:
        """The stacks of all that were asked, by rank, once this one was the last to come."""
        if stack.rank not in self._asked:
            return None
        self._stacks[stack.rank] = stack.text
        return self._stacks if self._stacks.keys() == self._asked else None
