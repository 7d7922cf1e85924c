"""The one thread with the event loop on which machines are started, reached and released.

It is never the kernel's own loop, and it never draws.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from skyward_nb.providers.base import Machine

T = TypeVar("T")
_GIVE_UP = 30.0
"""Seconds that cancelled work may take to clean up, for example to end machines."""


class LoopTask(Generic[T]):
    """A coroutine that runs on the loop thread."""

    def __init__(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> None:
        self._ended = threading.Event()
        self.future: Future[T] = asyncio.run_coroutine_threadsafe(self._run(work), loop)

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        finally:
            self._ended.set()

    def give_up(self) -> None:
        """Cancel it, and return when it has cleaned up."""
        self.future.cancel()
        self._ended.wait(_GIVE_UP)


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
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._loop.run_forever, name="skyward-loop", daemon=True
                ).start()
            return self._loop

    def start(self, work: Coroutine[Any, Any, T]) -> LoopTask[T]:
        """Begin a coroutine on the loop."""
        return LoopTask(work, self.loop)


LOOP = LoopThread()


def release(machines: Collection[Machine]) -> str:
    """Release the machines of a pool, side by side; returns those that may still run."""
    begun = [LOOP.start(machine.release()) for machine in machines]
    left = [work.future.result() for work in begun]
    return ", ".join(dict.fromkeys(filter(None, left)))
