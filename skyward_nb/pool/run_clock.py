"""The clock of a run: while what ranks said is drawn, no time of theirs passes.

What they say meanwhile waits, and a rank that has stopped in time must not seem late. Deadlines cannot
simply wait until all is read: of ranks that print without end, something is always left to read.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from skyward_nb.protocol.events import Event

_FIRST_SAMPLE = 0.3
_SAMPLE_PERIOD = 1.0


class RunClock:
    """Times what may take long while nothing is read, and says when ranks are to be sampled."""

    def __init__(self) -> None:
        self._drawing = 0.0
        self._sample_due = self.now() + _FIRST_SAMPLE

    def begin(self) -> None:
        """A first run begins: ranks are looked at a moment later."""
        self._sample_due = self.now() + _FIRST_SAMPLE

    def stopped(self, watch: Callable[[Event | None], None], event: Event | None) -> None:
        """Give an event to `watch`, during which no time passes."""
        began = time.monotonic()
        watch(event)
        self._drawing += time.monotonic() - began

    def now(self) -> float:
        """Seconds, of which none passed in `watch`."""
        return self.at(time.monotonic())

    def at(self, real: float) -> float:
        """A moment of the real clock on this one, if nothing was drawn since."""
        return real - self._drawing

    def real(self, due: float | None) -> float | None:
        """A time of this clock on the real one, if nothing more is drawn until then."""
        return None if due is None else due + self._drawing

    def is_sample_due(self) -> bool:
        """Whether to ask ranks how they are doing; says so once for each time."""
        now = self.now()
        if now < self._sample_due:
            return False
        self._sample_due = now + _SAMPLE_PERIOD
        return True
