"""Several things that wait, done side by side, without being deaf to the person."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

_TICK = 0.1
Work = Callable[[Callable[[], None]], None]
"""It gets what to call now and then; what that raises ends it."""


class Ended(BaseException):
    """Another one met what ends the whole, or nobody waits any more."""


def side_by_side(works: Sequence[Work], tick: Callable[[], None]) -> None:
    """Do each in a thread, and call `tick` meanwhile; raises what the first that fails raises.

    When one fails, or `tick` does, the others' own ticks end them.
    """
    if len(works) == 1:
        works[0](tick)
        return
    stop = threading.Event()
    errors: list[BaseException] = []

    def check() -> None:
        if stop.is_set():
            raise Ended

    def go(work: Work) -> None:
        try:
            work(check)
        except Ended:
            """Whoever ended it says why."""
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            errors.append(error)
            stop.set()

    threads: list[threading.Thread] = []
    try:
        for work in works:
            thread = threading.Thread(target=go, args=(work,), name="skyward-values")
            thread.start()
            threads.append(thread)
        for thread in threads:
            while thread.is_alive():
                thread.join(_TICK)
                tick()
    finally:
        if any(thread.is_alive() for thread in threads):
            stop.set()
            for thread in threads:
                thread.join()
    if errors:
        raise errors[0]
