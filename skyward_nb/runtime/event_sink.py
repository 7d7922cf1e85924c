"""The seam by which runtime code tells the pool something: events out, or nowhere.

It knows the run that speaks: what a cell says is that cell's, also after it has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from skyward_nb.protocol.events import Event

_emit: Callable[[Event], None] | None = None
_current = 0
_MAIN = threading.main_thread()
_MARK = "_skyward_run"


def connect(emit: Callable[[Event], None] | None) -> None:
    """Set where events go; `None`, as outside of a pool, for nowhere."""
    global _emit
    _emit = emit


def is_connected() -> bool:
    """Whether there is a pool to tell."""
    return _emit is not None


def emit(event: Event) -> None:
    """Tell the pool, if there is one."""
    if _emit is not None:
        _emit(event)


def begin(run: int) -> None:
    """A run begins; threads that live already go on speaking for the run that started them."""
    global _current
    for thread in threading.enumerate():
        if thread is not _MAIN and not hasattr(thread, _MARK):
            setattr(thread, _MARK, _current)
    _current = run


def run() -> int:
    """The run that the calling thread speaks for; 0 before any."""
    thread = threading.current_thread()
    return _current if thread is _MAIN else getattr(thread, _MARK, _current)
