"""The seam by which runtime code tells the pool something: events out, or nowhere."""

from __future__ import annotations

from collections.abc import Callable

from skyward_nb.words.messages import Event

_emit: Callable[[Event], None] | None = None


def connect(emit: Callable[[Event], None] | None) -> None:
    """Set where events go; `None`, as outside of a pool, for nowhere."""
    global _emit
    _emit = emit


def emit(event: Event) -> None:
    """Tell the pool, if there is one."""
    if _emit is not None:
        _emit(event)
