"""The seam by which runtime code tells the pool something: events out, or nowhere.

It knows the run that speaks: what a cell says is that cell's, also after it has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from skyward_nb.protocol.events import Event

_emit: Callable[[Event], None] | None = None
_current = 0
_hidden: dict[object, tuple[str, ...]] = {}
"""The streams that each function hides which runs now, by its token."""
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


def hide(streams: Iterable[str]) -> object:
    """Hide output on these streams from now on, in this run, until `show` gets what this returns."""
    token = object()
    _hidden[token] = tuple(streams)
    return token


def show(token: object) -> None:
    """Take back one `hide`; in a later run it is taken back already."""
    _hidden.pop(token, None)


def is_hidden(stream: str) -> bool:
    """Whether what is written to a stream is not shown now."""
    return bool(_hidden) and any(stream in each for each in tuple(_hidden.values()))


def begin(run: int) -> None:
    """A run begins, of which all is shown; threads that live already speak for the run that started them."""
    global _current
    _hidden.clear()
    for thread in threading.enumerate():
        if thread is not _MAIN and not hasattr(thread, _MARK):
            setattr(thread, _MARK, _current)
    _current = run


def run() -> int:
    """The run that the calling thread speaks for; 0 before any."""
    thread = threading.current_thread()
    return _current if thread is _MAIN else getattr(thread, _MARK, _current)
