"""The lock on a pool's state, and whose turn it is to listen: one thread at a time, for all that wait.

A thread that waits for a run listens where no other does, and passes the turn on when its own run is
over. So a run that is waited for by its own thread costs no hand-over, and many can go on at once.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator


class StateLock:
    """`with lock:` holds the state, for moments, as often as a thread likes; never while waiting.

    `take_turn` and `turn` are for listening, which takes as long as it takes.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._held_by: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        self._changed.acquire()

    def __exit__(self, *_: object) -> None:
        self._changed.release()

    def take_turn(self, seconds: float | None = None) -> bool:
        """Take the turn to listen; within `seconds`, if at all, but return early when something has changed."""
        me = threading.get_ident()
        with self._changed:
            if self._held_by not in (None, me):
                self._changed.wait(seconds)
            if self._held_by not in (None, me):
                return False
            self._held_by = me
            self._depth += 1
            return True

    def pass_on(self) -> None:
        """Have another thread listen."""
        with self._changed:
            self._depth -= 1
            if not self._depth:
                self._held_by = None
                self._changed.notify_all()

    def notify(self) -> None:
        """Wake all who wait: something has changed that they may wait for."""
        with self._changed:
            self._changed.notify_all()

    @contextlib.contextmanager
    def turn(self) -> Generator[None]:
        """Have the turn; waits until it is free."""
        while not self.take_turn():
            pass
        try:
            yield
        finally:
            self.pass_on()
