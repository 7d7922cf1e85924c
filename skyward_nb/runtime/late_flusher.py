"""A thread that tells a little later what was held back, so that a loop which stalls is shown as it is.

It sleeps while nothing is held back: slow loops never wake it, fast ones have it look four times a second.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable

PAUSE = 0.25


class LateFlusher:
    """Calls `flush` a moment after `wake`, and again as long as that says that there is more; for any thread."""

    def __init__(self, flush: Callable[[], bool]) -> None:
        self._flush = flush
        # Not an Event: an interrupt within its `set` would keep the lock inside it for good.
        self._asleep = threading.Lock()
        self._asleep.acquire()
        self.is_asleep: Callable[[], bool] = self._asleep.locked
        """Whether it must be woken."""
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Something is held back."""
        if self._thread is None:
            thread = threading.Thread(target=self._serve, name="skyward-late", daemon=True)
            thread.start()
            self._thread = thread
        with contextlib.suppress(RuntimeError):  # another thread was first
            self._asleep.release()

    def _serve(self) -> None:
        # Signals are the main thread's, which sleeps on if another one takes them.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        # A writer that holds something back from here on wakes it again.
        while self._asleep.acquire():
            time.sleep(PAUSE)
            if self._flush():
                self.wake()
