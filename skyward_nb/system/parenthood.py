"""What becomes of processes when their parents end, as Linux can be told."""

from __future__ import annotations

import contextlib
import ctypes
import signal

_DIE_WITH_PARENT = 1
_ADOPT_ORPHANS = 36


def hang_together() -> None:
    """End this process when its parent ends, and inherit its orphans (Linux)."""
    adopt_orphans()
    die_with_parent(signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of descendants that lose theirs (Linux)."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1)


def die_with_parent(number: int) -> None:
    """Be sent this signal when the parent ends, or none if it is 0 (Linux)."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, number)
