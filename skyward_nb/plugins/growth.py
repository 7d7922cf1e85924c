"""Ends what is recorded in this process before it takes too much memory.

How much a recorder holds it does not tell. But it only grows, and no faster than code can call what
is recorded: the rest of what the process holds more than at its least is the user's.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

_SIGNAL = getattr(signal, "SIGRTMIN", 0) + 7
_FASTEST = 500 << 20
"""Bytes a second: twice what half a million operators of torch in a second take."""
_EVERY = 0.05
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MEMORY = Path("/proc/self/statm")


class Growth:
    """The most by which a recorder in a process has grown, by the sizes `held` at some times."""

    def __init__(self, held: int, at: float) -> None:
        self._before, self._at, self._least = held, at, held
        self._grown = 0

    def saw(self, held: int, at: float) -> int:
        """The bytes that may be the recorder's, now that the process holds so many at this time."""
        rise = min(max(0, held - self._before), int(_FASTEST * (at - self._at)))
        self._before, self._at, self._least = held, at, min(held, self._least)
        self._grown = min(self._grown + rise, held - self._least)
        return self._grown


class Guard:
    """Looks after a recorder, from `begin` to `end`; `full` is called once when it has `most` bytes.

    That is on the main thread, between two instructions of the user's code. `begin` and `end` are
    called there, too. Where the system does not tell what a process holds, there is no guard.
    """

    def __init__(self, most: int, full: Callable[[], None]) -> None:
        self._most = most
        self._full = full
        self._over = threading.Event()
        # Of the main thread, whose signal handler may come within it.
        self._sending = threading.RLock()
        self._before: Any = None

    def begin(self) -> None:
        """Look from now on."""
        if _MEMORY.exists():
            self._before = signal.signal(_SIGNAL, self._on_signal)
            signal.siginterrupt(_SIGNAL, False)
            threading.Thread(target=self._look, name="skyward-growth", daemon=True).start()

    def end(self) -> None:
        """Stop looking; `full` is not called any more."""
        if self._before is not None:
            with self._sending:  # a signal after this would end the process
                self._over.set()
            signal.signal(_SIGNAL, self._before)
            self._before = None

    def _look(self) -> None:
        # Signals are the main thread's, which sleeps on if another one takes them.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        growth = Growth(_held(), time.monotonic())
        while not self._over.wait(_EVERY):
            if growth.saw(_held(), time.monotonic()) > self._most:
                with self._sending:
                    if not self._over.is_set():
                        signal.pthread_kill(threading.main_thread().ident or 0, _SIGNAL)
                return

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if not self._over.is_set():
            self._over.set()
            self._full()


def _held() -> int:
    """The memory that is this process's alone."""
    _, resident, shared, *_ = _MEMORY.read_text().split()
    return (int(resident) - int(shared)) * _PAGE
