"""Interrupts that are owed to the user's code: they came while the main thread waited for calls, and no rank has heard of them.

They come where a call returns, so that a loop of short calls stops as any loop does.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Generator, Iterable

from skyward_nb.functions.told_to_end import exits_if_told, number_owed
from skyward_nb.pool.outcome import ActiveRun
from skyward_nb.pool.pool import Pool

_ONCE_MORE = 0.01


def raise_if_owed(pool: Pool, going: Iterable[ActiveRun] = ()) -> None:
    """Raise KeyboardInterrupt, or SystemExit, where there is one; of those `going` on, each that took one tells of it at its end."""
    driver = pool.driver
    if driver.owes_interrupt and not any(run.state.is_interrupted for run in going):
        driver.forget_interrupts()
        with exits_if_told():
            raise KeyboardInterrupt


def raise_again_if_owed(pool: Pool) -> None:
    """Where there is one, have the signal come again soon: what raises in `__del__` ends there."""
    if pool.driver.owes_interrupt:
        pool.driver.forget_interrupts()
        again = threading.Timer(_ONCE_MORE, os.kill, (os.getpid(), number_owed()))
        again.daemon = True
        again.start()


@contextlib.contextmanager
def owed_at_its_end(pool: Pool) -> Generator[None]:
    """Raise what is owed once what is inside is over; an error of its own comes instead."""
    pool.driver.forget_old_interrupts()
    with exits_if_told():
        try:
            yield
        except BaseException:
            pool.driver.forget_interrupts()
            raise
        raise_if_owed(pool)
