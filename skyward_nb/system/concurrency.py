"""Several things that wait, done side by side, without being deaf to the person."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

_TICK = 0.1
Work = Callable[[Callable[[], None]], None]
"""It gets what to call now and then; what that raises ends it."""


class WorkStopped(BaseException):
    """Another one met what ends the whole, or nobody waits any more."""


def run_concurrently(works: Sequence[Work], tick: Callable[[], None]) -> None:
    """Do each in a thread, and call `tick` meanwhile; raises what the first that fails raises.

    When one fails, or `tick` does, the others' own ticks end them.
    """
    if len(works) == 1:
        works[0](tick)
        return
    over = threading.Event()
    errors: list[BaseException] = []

    def check() -> None:
        if over.is_set():
            raise WorkStopped

    def go(work: Work) -> None:
        try:
            work(check)
        except WorkStopped:
            """Whoever ended it says why."""
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            errors.append(error)
            over.set()

    with ThreadPoolExecutor(len(works) or 1, "skyward-values") as threads:
        try:
            going = {threads.submit(go, work) for work in works}
            while going:
                going = wait(going, _TICK, FIRST_COMPLETED).not_done
                tick()
        finally:
            over.set()
    if errors:
        raise errors[0]
