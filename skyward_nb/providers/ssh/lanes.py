"""More connections to a host, for values only, where one alone does not fill a long way.

How much one TCP connection carries is bounded by what its ends hold unacknowledged, over the time
that an answer takes: of 4 MB, Linux's own most (net.ipv4.tcp_wmem), half at 60 ms is 35 MB/s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import asyncssh

from skyward_nb.providers.ssh.faults import Unreachable
from skyward_nb.providers.ssh.stream import Gate

_SEATS = 4
"""Ways that share a connection before there is another one."""
_MOST = 4
"""Connections to a host, the first among them."""
_FAR = 0.02
"""Seconds that an answer of a host takes at least to which one connection may not be enough."""


class Lanes:
    """The connections beside the `first`; each is made by `dial` when it is first wanted.

    One that cannot be had is not tried again: what was to go over it goes over the first one.
    """

    def __init__(
        self, first: Gate, dial: Callable[[], Awaitable[asyncssh.SSHClientConnection]]
    ) -> None:
        self.first: Gate = first
        self._dial = dial
        self._taken: set[int] = set()
        self._others: dict[int, asyncio.Task[Gate | None]] = {}
        self._delay = float("inf")

    def answered(self, seconds: float) -> None:
        """So long an answer of the host took."""
        self._delay = min(self._delay, seconds)

    def take(self) -> int:
        """A seat for one way."""
        seat = next(number for number in range(len(self._taken) + 1) if number not in self._taken)
        self._taken.add(seat)
        return seat

    def leave(self, seat: int) -> None:
        """The way is no more."""
        self._taken.discard(seat)

    async def gate(self, seat: int) -> Gate:
        """The gate of the connection on which this seat is."""
        number = seat // _SEATS % _MOST
        if number == 0 or self._delay < _FAR:
            return self.first
        known = self._others.get(number)
        if known is None or _is_over(known):
            work = asyncio.get_running_loop().create_task(self._opened())
            known = self._others[number] = work
        return await asyncio.shield(known) or self.first

    async def _opened(self) -> Gate | None:
        try:
            return Gate(await self._dial())
        except Unreachable:
            return None

    async def close(self) -> None:
        """Hang up on all but the first."""
        others, self._others = list(self._others.values()), {}
        for other in others:
            other.cancel()
        for found in await asyncio.gather(*others, return_exceptions=True):
            if isinstance(found, Gate):
                found.connection.abort()
                await found.connection.wait_closed()


def _is_over(task: asyncio.Task[Gate | None]) -> bool:
    """Whether that connection was there, and is no more."""
    gate = task.result() if task.done() and not task.cancelled() else None
    return gate is not None and gate.connection.is_closed()
