"""More connections to a far host, for values only, if one alone is too slow.

The speed of a TCP connection is bounded by its unacknowledged bytes over the round-trip time: with Linux's
most, 4 MB (net.ipv4.tcp_wmem), half of which count, 60 ms allow 35 MB/s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from skyward_nb.providers.far.login_errors import Unreachable
from skyward_nb.providers.ssh.stream import BulkGate

_SEATS = 4
"""Channels that share a connection before another one is made."""
_MOST = 4
"""The most connections to a host, the first one included."""
_FAR = 0.02
"""The round trip, in seconds, from which on a host gets several connections."""
_PATIENCE = 3.0
"""Seconds that a channel waits for another connection before it uses the first one."""


class ConnectionSlot:
    """The place of one channel, which decides on its connection."""

    def __init__(self, taken: set[int]) -> None:
        self.number: int = next(at for at in range(len(taken) + 1) if at not in taken)
        self._taken = taken
        taken.add(self.number)

    def leave(self) -> None:
        """The channel has ended; may be called again."""
        self._taken.discard(self.number)
        self._taken = set()


class ExtraConnections:
    """The connections beside the `first` one; `dial` makes each of them on demand.

    `dial` gets the path of the channel, and raises `Unreachable`, also if it reaches another machine. A
    connection that failed is not tried again: its channels use the first one.
    """

    def __init__(self, first: BulkGate, dial: Callable[[str], Awaitable[BulkGate]] | None) -> None:
        self.first: BulkGate = first
        self._dial = dial
        self._taken: set[int] = set()
        self._others: dict[int, asyncio.Task[BulkGate | None]] = {}
        self._delay = float("inf")

    def answered(self, seconds: float) -> None:
        """Note the seconds that an answer of the host took."""
        self._delay = min(self._delay, seconds)

    def take(self) -> ConnectionSlot:
        """A slot for one channel."""
        return ConnectionSlot(self._taken)

    async def gate(self, seat: ConnectionSlot, path: str) -> BulkGate:
        """The gate of the connection of this slot, for a channel to this path."""
        number = seat.number // _SEATS % _MOST
        if number == 0 or self._dial is None or self._delay < _FAR:
            return self.first
        known = self._others.get(number)
        gate = known and _opened(known)
        if known is None or (gate and gate.connection.is_closed()):
            work = asyncio.get_running_loop().create_task(_open(self._dial, path))
            known = self._others[number] = work
        await asyncio.wait([known], timeout=_PATIENCE)
        gate = _opened(known)
        return self.first if gate is None or gate.connection.is_closed() else gate

    async def close(self) -> None:
        """Hang up on all but the first."""
        others, self._others = list(self._others.values()), {}
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for gate in filter(None, map(_opened, others)):
            gate.connection.abort()
            await gate.connection.wait_closed()


async def _open(dial: Callable[[str], Awaitable[BulkGate]], path: str) -> BulkGate | None:
    try:
        return await dial(path)
    except Unreachable:
        return None


def _opened(task: asyncio.Task[BulkGate | None]) -> BulkGate | None:
    """The gate that was opened, if there is one; its connection may have ended."""
    is_done = task.done() and not task.cancelled() and task.exception() is None
    return task.result() if is_done else None
