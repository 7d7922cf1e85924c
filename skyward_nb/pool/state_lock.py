"""The lock on a pool's state, and the turn to listen, which one thread has at a time, for all.

A thread that waits for a run takes the turn if it is free, and passes it on when its own run is over. So a
run that its own thread waits for costs no hand-over, and many can go on at once.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator

from skyward_nb.pool.interrupt_handlers import PutOff

_ROUND = 0.1
"""Seconds after which a wait for the turn looks for an interrupt that was put off."""


class StateLock:
    """`with lock:` holds the state for a moment, never while waiting; it is reentrant.

    `take_turn` and `turn` are for listening, which may take long.
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
        """Take the turn to listen, if it is free within `seconds`; returns early after `notify`."""
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
        """Release the turn."""
        with self._changed:
            self._depth -= 1
            if not self._depth:
                self._held_by = None
                self._changed.notify_all()

    def notify(self) -> None:
        """Wake all waiting threads, since something has changed."""
        with self._changed:
            self._changed.notify_all()

    @contextlib.contextmanager
    def turn(self) -> Generator[None]:
        """Hold the turn; waits until it is free. An interrupt inside waits, unless somebody takes it."""
        with PutOff() as interrupt:
            while not self.take_turn(_ROUND if interrupt.is_there else None):
                interrupt.check()
            try:
                interrupt.check()
                yield
            finally:
                self.pass_on()
