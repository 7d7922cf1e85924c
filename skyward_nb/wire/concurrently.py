"""Several things that wait, done side by side, without being deaf to the person."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

_TICK = 0.1
Work = Callable[[Callable[[], None]], None]
"""It gets what to call now and then; what that raises ends it."""


class Ended(BaseException):
    """Another one met what ends the whole, or nobody waits any more."""


def run_concurrently(works: Sequence[Work], tick: Callable[[], None]) -> None:
    """Do each in a thread, and call `tick` meanwhile; raises what the first that fails raises.

    When one fails, or `tick` does, the others' own ticks end them.
    """
    if len(works) == 1:
        works[0](tick)
        return
    crew = _Crew()
    try:
        for work in works:
            crew.start(work)
        crew.wait(tick)
    finally:
        crew.end()
    if crew.errors:
        raise crew.errors[0]


class _Crew:
    """Threads at work, and what they failed of."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []

    def start(self, work: Work) -> None:
        thread = threading.Thread(target=self._go, args=(work,), name="skyward-values")
        thread.start()
        self._threads.append(thread)

    def _go(self, work: Work) -> None:
        try:
            work(self._check)
        except Ended:
            """Whoever ended it says why."""
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            self.errors.append(error)
            self._stop.set()

    def _check(self) -> None:
        if self._stop.is_set():
            raise Ended

    def wait(self, tick: Callable[[], None]) -> None:
        for thread in self._threads:
            while thread.is_alive():
                thread.join(_TICK)
                tick()

    def end(self) -> None:
        """Have those that still work end."""
        if any(thread.is_alive() for thread in self._threads):
            self._stop.set()
            for thread in self._threads:
                thread.join()
