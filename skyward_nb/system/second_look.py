"""A selector by which what has come is found also where this process stood still past the end of the wait.

Where a process is stopped and goes on (a machine that is paused, a debugger), `epoll_wait` is interrupted, and Python,
which would wait on (PEP 475), finds the time over and says that nothing is there, although there may be.
"""

from __future__ import annotations

import selectors

Ready = list[tuple[selectors.SelectorKey, int]]


class SecondLook(selectors.DefaultSelector):
    """Looks once more before it says that nothing has come in time."""

    def select(self, timeout: float | None = None) -> Ready:
        """What is ready within `timeout` seconds."""
        found = super().select(timeout)
        return found if found or timeout is None or timeout <= 0 else super().select(0)
