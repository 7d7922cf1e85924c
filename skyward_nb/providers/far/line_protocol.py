"""What a machine of a pool needs of the way to it: `Line`."""

from __future__ import annotations

import socket
from abc import abstractmethod

from skyward_nb.bootstrap.remote_shell import Shell
from skyward_nb.store.byte_streams import ByteStream


class Line(Shell):
    """The way to one machine: a `Shell` there, and streams to its unix sockets.

    What carries it (an SSH connection, say) may be lost and made anew; each has a `number`.
    """

    number: int
    """The number of connections so far, the current one included; 0 before the first."""

    place: str
    """Where it leads, in words: `ann@10.0.0.11 port 22`, `node c1 of job 12`."""

    reaching: str
    """What connecting is called while it takes: `logging in to hosts`."""

    advice: str
    """Where scripts run and no stream arrives: why, and what to do."""

    beat: float
    """Seconds after which a machine without an agent wants to hear something, as it ends by itself; 0: it does not."""

    @abstractmethod
    async def connect(self) -> None:
        """Reach the machine; raises `Unreachable`."""

    @abstractmethod
    async def reached(self) -> int:
        """The number of the connection, which is made anew if it was lost; raises OSError."""

    @abstractmethod
    async def stream(self, path: str, over: int | None = None) -> socket.socket:
        """A stream of frames to a unix socket there, over the connection numbered `over` or a new one.

        Raises `ConnectionRefusedError` if nothing listens there, and OSError if the machine, or that
        connection, cannot be used now.
        """

    async def way(self, path: str, over: int | None = None) -> socket.socket | ByteStream:
        """A channel for values to a unix socket there: a `stream`, unless the line has other channels for them.

        EBUSY says that there may be no more of them at the same time.
        """
        return await self.stream(path, over)

    @abstractmethod
    async def close(self) -> None:
        """Hang up."""
