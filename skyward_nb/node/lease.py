"""The lease of a machine that ends by itself: touched while somebody needs the machine.

Whoever rents the machine says which file that is; where nobody does, there is no lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable

VARIABLE = "SKYWARD_LEASE_FILE"
_EVERY = 10.0


class Lease:
    """Touches the file now and then, while `is_needed` says so."""

    def __init__(self, path: str, is_needed: Callable[[], bool]) -> None:
        self._path = path
        self._is_needed = is_needed
        self._again: asyncio.TimerHandle | None = None

    def renew(self) -> None:
        """Touch it now, if need be, and from now on."""
        self.close()
        if self._is_needed():
            # Its time of change alone: a disk that is full takes that, too.
            with contextlib.suppress(OSError):
                os.utime(self._path)
        self._again = asyncio.get_running_loop().call_later(_EVERY, self.renew)

    def close(self) -> None:
        """Touch it no more."""
        if self._again is not None:
            self._again.cancel()
            self._again = None


def lease_of(is_needed: Callable[[], bool]) -> Lease | None:
    """The lease that this process was told of, if any."""
    path = os.environ.get(VARIABLE)
    return Lease(path, is_needed) if path else None
