"""Looks at what other threads of this process are at, which end no process.

Python 3.11 makes the object of a frame when it is asked for, and that may begin a collection of garbage: code that
runs in it lets other threads go on, so that the frame is gone when the collection ends, and the memory that is read
then is something else's. `sys._current_frames` holds a lock meanwhile, for which such a thread may wait for good
(https://github.com/python/cpython/issues/106883). So no garbage is collected during a look. Later Pythons collect
between instructions alone.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext

_inside: set[int] = set()
"""Threads whose looks go on, before the first of which garbage was collected."""


def looking() -> AbstractContextManager[None]:
    """To be entered for a look at frames of other threads, until all that is to be known of them is."""
    return _without_collections() if sys.version_info < (3, 12) else nullcontext()


@contextmanager
def _without_collections() -> Generator[None]:
    own = threading.get_ident()
    if own in _inside or not (_inside or gc.isenabled()):
        yield
        return
    # The last one that leaves has it collected again.
    _inside.add(own)
    try:
        gc.disable()
        yield
    finally:
        _inside.discard(own)
        if not _inside:
            gc.enable()


def _collect_in_child() -> None:
    """Another thread was inside as this process was forked: here it is not."""
    if _inside:
        _inside.clear()
        gc.enable()


os.register_at_fork(after_in_child=_collect_in_child)
