"""The one thread with the event loop on which machines are started, reached and released.

It is never the kernel's own loop, and it never draws.
"""

from __future__ import annotations

import asyncio
import atexit
import sys
import threading
import warnings
from collections.abc import Collection, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from skyward_nb.providers.provider_protocol import Machine
from skyward_nb.system.patient_loop import PatientLoop

T = TypeVar("T")
_GIVE_UP = 30.0
"""Seconds that cancelled work may take to clean up, for example to end machines, before that is said."""
_AT_EXIT = 900.0
"""Seconds for which this process waits at its end for work that still cleans up: what takes machines down takes minutes."""


class LoopTask(Generic[T]):
    """A coroutine that runs on the loop thread; `name` says for people what it does."""

    def __init__(
        self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop, name: str = ""
    ) -> None:
        self.name: str = name or work.__name__
        self._ended = threading.Event()
        self.future: Future[T] = asyncio.run_coroutine_threadsafe(self._run(work), loop)

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        finally:
            self._ended.set()

    def give_up(self) -> None:
        """Cancel it, and return when it has cleaned up; where that takes long, say so: the end of this process waits for it."""
        self.future.cancel()
        if self._ended.wait(_GIVE_UP):
            return
        _cleaning.append(self)
        warnings.warn(
            f"{self.name} is interrupted, and what it has asked for is still being ended after {_GIVE_UP:.0f} s: leave this "
            "process running, which waits for that at its end. `%sky sweep` says what is left",
            stacklevel=2,
        )

    def wait(self, limit: float) -> bool:
        """Wait until it has ended; whether it has."""
        return self._ended.wait(limit)


_cleaning: list[LoopTask[Any]] = []


@atexit.register
def wait_for_cleaning() -> None:
    """Wait for work that was given up and still cleans up, for example ends machines."""
    for work in (each for each in _cleaning if not each.wait(0)):
        print(f"{work.name}: waiting until what it has asked for is ended", file=sys.stderr)
        work.wait(_AT_EXIT)
    _cleaning.clear()


class LoopThread:
    """An asyncio loop on a daemon thread, started when first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, running."""
        with self._lock:
            if self._loop is None:
                self._loop = PatientLoop()
                threading.Thread(
                    target=self._loop.run_forever, name="skyward-loop", daemon=True
                ).start()
            return self._loop

    def start(self, work: Coroutine[Any, Any, T], name: str = "") -> LoopTask[T]:
        """Begin a coroutine on the loop; `name` says for people what it does."""
        return LoopTask(work, self.loop, name)


LOOP = LoopThread()


def release(machines: Collection[Machine]) -> str:
    """Release the machines of a pool, side by side; returns those that may still run."""
    begun = [LOOP.start(machine.release()) for machine in machines]
    left = [work.future.result() for work in begun]
    return ", ".join(dict.fromkeys(filter(None, left)))
