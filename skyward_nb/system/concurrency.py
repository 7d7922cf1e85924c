"""Several blocking functions run at once, while the caller can still be interrupted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

_TICK = 0.1
Work = Callable[[Callable[[], None]], None]
"""Gets a function to call now and then; an exception of that function ends the work."""


class WorkStopped(BaseException):
    """Raised in a task whose result is no longer needed: another task failed, or `tick` did."""


def run_concurrently(works: Sequence[Work], tick: Callable[[], None]) -> None:
    """Run each in a thread, and call `tick` meanwhile; raises the first error.

    When one fails, or `tick` does, the others are ended by their own ticks.
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
            """The work that failed has the reason."""
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
