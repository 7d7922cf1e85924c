"""SIGTERM and SIGHUP while a program has pools: it ends as by `sys.exit`, and its pools end with it.

A run in the main thread is interrupted first, as by Ctrl-C. The exit code is 128 + the number of the signal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Generator

from IPython.core.getipython import get_ipython

from skyward_nb.pool.interrupt_handlers import InterruptTaken, PutOff
from skyward_nb.system.end_signals import ToldToEnd, handled_by

_open: set[object] = set()
_caught = contextlib.ExitStack()
_told: list[int] = []
"""The signals that came as interrupts, and have not raised SystemExit yet."""


def open_for(pool: object) -> None:
    """From now on a signal ends the program in order, if this is its main thread; not in IPython, which ends its own."""
    if threading.current_thread() is threading.main_thread() and get_ipython() is None:
        if not _open:
            _told.clear()
            _caught.enter_context(handled_by(_end))
        _open.add(pool)


def closed(pool: object) -> None:
    """A pool is closed; after the last one, signals do what they did before.

    Raises SystemExit then, if such a signal came: it may have been an interrupt, or have come as the pool closed.
    """
    _open.discard(pool)
    if not _open and threading.current_thread() is threading.main_thread():
        _caught.close()
        _exit_if_told()


@contextlib.contextmanager
def exits_if_told() -> Generator[None]:
    """Where an interrupt was one of these signals, raise SystemExit in place of KeyboardInterrupt."""
    try:
        yield
    except KeyboardInterrupt:
        _exit_if_told()
        raise


def number_owed() -> int:
    """The signal that an interrupt was, which is to come once more."""
    return _told.pop() if _told else signal.SIGINT


def signal_of(error: KeyboardInterrupt | SystemExit) -> int:
    """The signal that was raised as this; 0 where a program ended itself."""
    if isinstance(error, KeyboardInterrupt):
        return signal.SIGINT
    return error.number if isinstance(error, ToldToEnd) else 0


def _exit_if_told() -> None:
    if _told:
        number = _told[-1]
        _told.clear()
        raise ToldToEnd(number) from None


def _end(number: int, frame: object) -> None:
    if not _open:  # another thread has closed the last one, or this is a fork of the program
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
        return
    # Within our code, which such an exception must not leave, somebody takes it, or it is put off.
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, InterruptTaken):
        _told.append(number)
        handler(signal.SIGINT, frame)
    elif isinstance(handler, PutOff):
        handler(number, frame)
    else:
        raise ToldToEnd(number)


os.register_at_fork(after_in_child=_open.clear)
