"""An event loop by which what has come is read before a deadline counts, also after this process stood still.

asyncio calls all timers that are due before the tasks which what it read wakes up. Where a process was stopped, what it
waits for has often come meanwhile: tasks get some turns first.
"""

from __future__ import annotations

import asyncio
import time

from skyward_nb.system.second_look import Ready, SecondLook

_LATE = 0.05
"""Seconds by which a wait may be longer than asked before this process counts as having stood still."""
_BUSY = 0.25
"""Seconds that what the loop calls may take between two waits before the same is said."""
_TURNS, _LONGEST = 10, 0.5
"""So many turns of the loop do timers wait then, and seconds."""
_MOST = 2
"""So often do they wait before they have a turn in any case."""


class _Standstill(SecondLook):
    """A selector that knows when the loop last looked at timers, for as long as those wait that are due since."""

    def __init__(self) -> None:
        super().__init__()
        self.held: float | None = None
        self._since = self._until = self._last = time.monotonic()
        self._turns = self._times = 0

    def select(self, timeout: float | None = None) -> Ready:
        """What is ready within `timeout` seconds."""
        before, began = self._last, time.monotonic()
        found = super().select(timeout)
        self._last = time.monotonic()
        late = 0.0 if timeout is None else self._last - began - max(timeout, 0.0)
        stood = late > _LATE or began - before > _BUSY
        if stood and self._times < _MOST:
            self._since = self._since if self._turns else before
            self._times += 1
            self._turns, self._until = _TURNS, self._last + _LONGEST
        elif self._turns:
            self._turns = 0 if stood or self._last > self._until else self._turns - 1
        if not self._turns:
            self._times = 0
        self.held = self._since if self._turns else None
        return found


class PatientLoop(asyncio.SelectorEventLoop):
    """An event loop in which timers wait some turns where this process stood still."""

    def __init__(self) -> None:
        self._standstill = _Standstill()
        super().__init__(self._standstill)

    def time(self) -> float:
        """Seconds, from anywhere; just after a wait it is asked by the loop itself, for which timers are due."""
        held, self._standstill.held = self._standstill.held, None
        return super().time() if held is None else held
