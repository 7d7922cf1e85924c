"""Interrupts that are owed to the user's code: they came while the main thread waited for calls, and nobody has taken them.

They come where a call returns, so that a loop of short calls stops as any loop does.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Generator

from skyward_nb.functions.told_to_end import exits_if_told, number_owed, signal_of
from skyward_nb.pool.interrupt_handlers import PutOff
from skyward_nb.pool.pool import Pool

_ONCE_MORE = 0.05
"""Seconds after which a signal comes again: `__del__` is over by then."""


def raise_if_owed(pool: Pool) -> None:
    """Raise KeyboardInterrupt, or SystemExit, where there is one."""
    if pool.driver.owes_interrupt:
        pool.driver.interrupts_told()
        with exits_if_told():
            raise KeyboardInterrupt


@contextlib.contextmanager
def owed_at_its_end(pool: Pool) -> Generator[None]:
    """Raise what is owed once what is inside is over, but not what came before; an error of its own comes instead."""
    pool.driver.forget_interrupts()
    with exits_if_told():
        try:
            yield
        except BaseException:
            pool.driver.interrupts_told()
            raise
        raise_if_owed(pool)


def at_drop(pool: Pool, act: Callable[[], None], number: int = 0) -> None:
    """Do something as a generator is dropped: an interrupt meanwhile comes soon after, since what raises there is lost.

    So does the signal of a `number` that came before. What is done must be such that it can be done again.
    """
    is_done = False
    try:
        while not is_done:
            try:
                with PutOff():
                    act()
                    is_done = True
            except (KeyboardInterrupt, SystemExit) as error:  # before it was put off, or after
                number = signal_of(error)
    finally:
        if number or pool.driver.owes_interrupt:
            pool.driver.interrupts_told()
            again = threading.Timer(_ONCE_MORE, os.kill, (os.getpid(), number or number_owed()))
            again.daemon = True
            again.start()
