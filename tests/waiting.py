"""Waiting for what comes about elsewhere: in another process, thread or page."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(what: Callable[[], T], seconds: float = 60, told: Callable[[], object] = lambda: "") -> T:
    """What this returns once it is true; AssertionError with what is `told` where it is not for so many seconds."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, f"not so for {seconds:g} s {told()}"
        time.sleep(0.02)
    return found
