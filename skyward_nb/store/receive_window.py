"""The number of bytes requested ahead on a line: enough to keep it busy, and hardly more.

What is asked for ahead waits on its way where words wait, too: on a slow line they are to be behind
a moment's worth of bytes, not behind megabytes. Rate and delay are known by what comes.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

_FIRST = 64 << 10
_LEAST = 16 << 10
_LEAST_PIECE = 4 << 10
_MOMENT = 0.05
"""Seconds that words may wait behind what comes."""
_FADES = 0.6
_DELAYS = 2
_TIMED_AGAIN = 10.0
"""Seconds after which requests pause until all bytes have come, so that the delay can be measured again."""
_TICK = 0.1


class RequestedBytes:
    """Bytes that are to come: `left` of so many, and the state of the line when they were requested."""

    def __init__(
        self, size: int, at: float, came: int, *, tells_delay: bool, is_full: bool
    ) -> None:
        self.left = size
        self.at = at
        self.came = came
        self.tells_delay = tells_delay
        """Whether nothing was before it on its way."""
        self.is_full = is_full
        """Whether that was as much ahead as was allowed, or nearly."""


class ReceiveWindow:
    """What is on its way over one line, on any number of streams, from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._flying = 0
        self._came = 0
        self._rate = 0.0
        self._delays: deque[float] = deque(maxlen=_DELAYS)
        self._timed = float("-inf")

    @property
    def delay(self) -> float:
        """Seconds that an answer takes on an idle line; 0: not yet known."""
        return min(self._delays, default=0.0)

    @property
    def most(self) -> int:
        """Bytes that may be on their way."""
        if not self._rate:
            return _FIRST
        return max(_LEAST, int(self._rate * (2 * self.delay + _MOMENT)))

    def ask(self, wanted: int, parts: int) -> RequestedBytes | None:
        """Request at most so many bytes, in `parts` of the window; None: not now."""
        with self._changed:
            now, most = self._clock(), self.most
            size = min(wanted, max(_LEAST_PIECE, most // parts))
            is_time = now > self._timed + _TIMED_AGAIN
            if self._flying and (self._flying + size > most or is_time):
                return None
            is_full = self._flying + size >= most // 2
            if is_time:
                # Little, as the first of it may not be heard of before the last is there.
                size, self._timed = min(size, _LEAST_PIECE), now
            asked = RequestedBytes(size, now, self._came, tells_delay=is_time, is_full=is_full)
            self._flying += size
            return asked

    def wait(self, tick: Callable[[], None]) -> None:
        """Wait a moment for room."""
        with self._changed:
            self._changed.wait(_TICK)
        tick()

    def answered(self, asked: RequestedBytes) -> None:
        """The first of it comes."""
        if asked.tells_delay:
            self.took(self._clock() - asked.at)

    def took(self, delay: float) -> None:
        """So long an answer took on a line with nothing else on it."""
        with self._changed:
            self._delays.append(delay)

    def shrink(self, asked: RequestedBytes, size: int) -> None:
        """No more than so many bytes of it are to come."""
        with self._changed:
            self._flying -= asked.left - size
            asked.left = size
            self._changed.notify_all()

    def has_come(self, asked: RequestedBytes, size: int) -> None:
        """So many bytes of it are here."""
        with self._changed:
            asked.left -= size
            self._flying -= size
            self._came += size
            if not asked.left:
                self._measure(asked)
            self._changed.notify_all()

    def _measure(self, asked: RequestedBytes) -> None:
        rate = (self._came - asked.came) / max(self._clock() - asked.at, 1e-6)
        if rate > self._rate:
            self._rate = rate
        elif asked.is_full:  # where less was asked for than could come, that tells nothing
            self._rate = max(rate, _FADES * self._rate)

    def forget(self) -> None:
        """It is another line now, of which nothing is known."""
        with self._changed:
            self._rate, self._timed = 0.0, float("-inf")
            self._delays.clear()

    def gone(self, asked: RequestedBytes) -> None:
        """What has not come of it never will."""
        self.shrink(asked, 0)
