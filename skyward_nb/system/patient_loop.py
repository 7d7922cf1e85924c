"""An event loop by which what has come is read before a deadline counts, also after this process stood still.

asyncio calls all timers that are due before the tasks which what it read wakes up. Where a process was stopped, what it
waits for has often come meanwhile.
"""

from __future__ import annotations

import asyncio
import time

from skyward_nb.system.second_look import Ready, SecondLook

_LATE = 0.05
"""Seconds by which a wait may be longer than asked before this process counts as having stood still."""
_BUSY = 0.25
"""Seconds that what the loop calls may take between two waits before the same is said."""
_TURNS = 0.05
"""Seconds that timers wait then, in which tasks take what was read."""


class _StandstillClock(SecondLook):
    """A selector that adds up the `seconds` in which this process stood still, and timers waited for it."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self._last = time.monotonic()

    def select(self, timeout: float | None = None) -> Ready:
        """What is ready within `timeout` seconds."""
        began = time.monotonic()
        self._add(began - self._last, _BUSY)
        found = super().select(timeout)
        self._last = time.monotonic()
        if timeout is not None:
            self._add(self._last - began - max(timeout, 0.0), _LATE)
        return found

    def _add(self, late: float, most: float) -> None:
        if late > most:
            self.seconds += late + _TURNS


class PatientLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock, by which its timers go, leaves out the time in which this process stood still."""

    def __init__(self) -> None:
        self._standstill = _StandstillClock()
        super().__init__(self._standstill)

    def time(self) -> float:
        """Seconds, from anywhere."""
        return super().time() - self._standstill.seconds
