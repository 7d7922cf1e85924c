"""A kept machine whose agent is reached by TCP, too, where that is let through."""

from __future__ import annotations

import socket
from functools import partial

from skyward_nb.providers.far.direct_connection import Asking, DirectConnection, ThroughFor
from skyward_nb.providers.far.far_machine import VALUES
from skyward_nb.providers.far.keeper import KeptMachine
from skyward_nb.store.byte_streams import ByteStream


class DirectMachine(KeptMachine):
    """Commands and values go by a direct connection to the agent, and over the line where there is none."""

    through: ThroughFor | None = None
    """By which command an address of the machine is reached; None: from here."""
    is_near: bool = True
    """Whether addresses of the machine may be reached at all."""
    _direct: DirectConnection | None = None

    async def _stream(self, path: str, over: int) -> socket.socket:
        """A stream to the agent."""
        near = await self._entered().commands(self._asking(over)) if self.is_near else None
        return near or await super()._stream(path, over)

    async def _way(self, path: str, over: int) -> socket.socket | ByteStream:
        """A channel for values."""
        near = await self._entered().values(self._asking(over)) if self.is_near else None
        return near or await super()._way(path, over)

    def _entered(self) -> DirectConnection:
        if self._direct is None:
            self._direct = DirectConnection(self.name, self.through)
        return self._direct

    def _asking(self, over: int) -> Asking:
        """How a direct connection is asked for, over the present connection: an earlier one may have ended since."""
        return partial(super()._way, f"{self._runtime}/{VALUES}", over)

    async def _shut(self) -> None:
        """Wait for the ends of commands that carried direct connections."""
        if self._direct is not None:
            await self._direct.close()
