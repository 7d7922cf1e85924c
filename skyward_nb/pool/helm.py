"""One thread at a time listens to a pool's machines, for all that wait; the others wait for it.

Whoever waits for a run takes the helm when it is free, and gives it away when its own run is over.
So a run that is waited for by its own thread costs no hand-over, and many can go on at once.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator


class Helm:
    """A lock on a pool's state, which is held for moments, and the helm, held while listening.

    The lock is taken by `with helm:`, as often as a thread likes; never while waiting for events.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._held_by: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        self._changed.acquire()

    def __exit__(self, *_: object) -> None:
        self._changed.release()

    def take(self, seconds: float | None = None) -> bool:
        """Take the helm; within `seconds`, if at all, but return early when something has changed."""
        me = threading.get_ident()
        with self._changed:
            if self._held_by not in (None, me):
                self._changed.wait(seconds)
            if self._held_by not in (None, me):
                return False
            self._held_by = me
            self._depth += 1
            return True

    def give(self) -> None:
        """Give the helm away, to whoever waits."""
        with self._changed:
            self._depth -= 1
            if not self._depth:
                self._held_by = None
                self._changed.notify_all()

    def tell(self) -> None:
        """Wake all who wait: something has changed that they may wait for."""
        with self._changed:
            self._changed.notify_all()

    @contextlib.contextmanager
    def held(self) -> Generator[None]:
        """Hold the helm; waits until it is free."""
        while not self.take():
            pass
        try:
            yield
        finally:
            self.give()
