"""The clock of runs, which stands still while events are drawn, and while ranks stand at breakpoints.

Events wait meanwhile, and a rank that has stopped in time must not seem late. Deadlines cannot simply
wait until all is read: ranks that print without end always leave something to read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from skyward_nb.protocol.events import Event

_FIRST_SAMPLE = 0.3
_SAMPLE_PERIOD = 1.0


class RunClock:
    """A clock without the time spent in `watch`; it also says when to sample ranks."""

    def __init__(self) -> None:
        self._drawing = 0.0
        self._held: float | None = None
        self._holding = threading.Lock()
        self._sample_due = self.now() + _FIRST_SAMPLE

    def begin(self) -> None:
        """Begin with the first run: ranks are sampled a moment later."""
        self._sample_due = self.now() + _FIRST_SAMPLE

    def stopped(self, watch: Callable[[Event | None], None], event: Event | None) -> None:
        """Give an event to `watch`; no time passes meanwhile."""
        began = time.monotonic()
        held = self._held
        watch(event)
        if held is None and self._held is None:
            self._drawing += time.monotonic() - began

    def hold(self, held: bool) -> None:
        """Stand still from now on, as while ranks stand at breakpoints; or go on."""
        with self._holding:
            now = time.monotonic()
            if held and self._held is None:
                self._held = now
            elif not held and self._held is not None:
                self._drawing += now - self._held
                self._held = None

    def now(self) -> float:
        """The time in seconds."""
        return self.at(time.monotonic())

    def at(self, real: float) -> float:
        """This clock's time at a time of the real clock, if nothing was drawn since."""
        return min(real, self._held or real) - self._drawing

    def real(self, due: float | None) -> float | None:
        """The real clock's time at a time of this clock, if nothing is drawn until then; None while it stands still."""
        return None if due is None or self._held is not None else due + self._drawing

    def is_sample_due(self) -> bool:
        """Whether to sample ranks now; True once for each sample."""
        now = self.now()
        if now < self._sample_due:
            return False
        self._sample_due = now + _SAMPLE_PERIOD
        return True
