"""The lease of a machine that ends by itself: a file, touched while a pool needs the machine.

The provider that rents the machine names the file; without one there is no lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable

VARIABLE = "SKYWARD_LEASE_FILE"
_EVERY = 10.0


class Lease:
    """Touches the file, if there is one, now and then while `is_needed`."""

    def __init__(self, is_needed: Callable[[], bool]) -> None:
        self._path = os.environ.get(VARIABLE)
        self._is_needed = is_needed
        self._again: asyncio.TimerHandle | None = None

    def renew(self) -> None:
        """Touch it now, if need be, and from now on."""
        self.close()
        if not self._path:
            return
        if self._is_needed():
            # Its times alone: that works even if the disk is full.
            with contextlib.suppress(OSError):
                os.utime(self._path)
        self._again = asyncio.get_running_loop().call_later(_EVERY, self.renew)

    def close(self) -> None:
        """Touch it no more."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
