"""Interrupts as entries of a queue, so that none of our own code is torn by one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue

from skyward_nb.pool.link import Incoming, SigInt


@contextmanager
def interrupts_into(inbox: SimpleQueue[Incoming]) -> Iterator[None]:
    """While inside, SIGINT puts a `SigInt` into `inbox` instead of raising.

    Off the main thread nothing is changed: signals do not arrive there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: inbox.put(SigInt()))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
