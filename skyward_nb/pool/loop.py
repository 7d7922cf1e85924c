"""The one thread on which machines are started, reached and released: coroutines go in.

It is never the kernel's own loop, and it never draws.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


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

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)


LOOP = LoopThread()
