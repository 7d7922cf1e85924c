"""More connections to a host, for values only, where one alone does not fill a long way.

How much one TCP connection carries is bounded by what its ends hold unacknowledged, over the time
that an answer takes: of 4 MB, Linux's own most (net.ipv4.tcp_wmem), half at 60 ms is 35 MB/s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from skyward_nb.providers.ssh.login_errors import Unreachable
from skyward_nb.providers.ssh.stream import BulkGate

_SEATS = 4
"""Ways that share a connection before there is another one."""
_MOST = 4
"""Connections to a host, the first among them."""
_FAR = 0.02
"""Seconds that an answer of a host takes at least to which one connection may not be enough."""
_PATIENCE = 3.0
"""Seconds that a way waits for a connection of its own, before it goes over the first one."""


class ConnectionSlot:
    """A place for one way, from which follows the connection that it goes over."""

    def __init__(self, taken: set[int]) -> None:
        self.number: int = next(at for at in range(len(taken) + 1) if at not in taken)
        self._taken = taken
        taken.add(self.number)

    def leave(self) -> None:
        """The way is no more; again, without harm."""
        self._taken.discard(self.number)
        self._taken = set()


class ExtraConnections:
    """The connections beside the `first`; each is made by `dial` when it is first wanted.

    `dial` gets the path that is wanted, and raises `Unreachable`, also where it would lead elsewhere.
    One that cannot be had is not tried again: what was to go over it goes over the first one.
    """

    def __init__(self, first: BulkGate, dial: Callable[[str], Awaitable[BulkGate]] | None) -> None:
        self.first: BulkGate = first
        self._dial = dial
        self._taken: set[int] = set()
        self._others: dict[int, asyncio.Task[BulkGate | None]] = {}
        self._delay = float("inf")

    def answered(self, seconds: float) -> None:
        """So long an answer of the host took."""
        self._delay = min(self._delay, seconds)

    def take(self) -> ConnectionSlot:
        """A seat for one way."""
        return ConnectionSlot(self._taken)

    async def gate(self, seat: ConnectionSlot, path: str) -> BulkGate:
        """The gate of the connection on which this seat is, of a way to this path."""
        number = seat.number // _SEATS % _MOST
        if number == 0 or self._dial is None or self._delay < _FAR:
            return self.first
        known = self._others.get(number)
        if known is None or _is_over(known):
            work = asyncio.get_running_loop().create_task(_opened(self._dial, path))
            known = self._others[number] = work
        await asyncio.wait([known], timeout=_PATIENCE)
        return _found(known) or self.first

    async def close(self) -> None:
        """Hang up on all but the first."""
        others, self._others = list(self._others.values()), {}
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for gate in filter(None, map(_found, others)):
            gate.connection.abort()
            await gate.connection.wait_closed()


async def _opened(dial: Callable[[str], Awaitable[BulkGate]], path: str) -> BulkGate | None:
    try:
        return await dial(path)
    except Unreachable:
        return None


def _found(task: asyncio.Task[BulkGate | None]) -> BulkGate | None:
    """The gate that was opened, if one was, and its connection is there."""
    if not task.done() or task.cancelled() or task.exception() is not None:
        return None
    gate = task.result()
    return None if gate is None or gate.connection.is_closed() else gate


def _is_over(task: asyncio.Task[BulkGate | None]) -> bool:
    """Whether that connection was there, and is no more."""
    is_done = task.done() and not task.cancelled() and task.exception() is None
    return is_done and task.result() is not None and _found(task) is None
