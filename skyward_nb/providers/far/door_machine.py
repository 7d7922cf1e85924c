"""A kept machine whose agent is reached by TCP, too, where that is let through."""

from __future__ import annotations

import socket
from functools import partial

from skyward_nb.providers.far.agent_door import AgentDoor, Asking, ThroughFor
from skyward_nb.providers.far.far_machine import VALUES
from skyward_nb.providers.far.keeper import KeptMachine
from skyward_nb.store.byte_streams import ByteStream


class DoorMachine(KeptMachine):
    """Commands and values go by the agent's door, and over the line where there is no way to it."""

    through: ThroughFor | None = None
    """By which command an address of the machine is reached; None: from here."""
    is_near: bool = True
    """Whether addresses of the machine may be reached at all."""
    _door: AgentDoor | None = None

    async def _stream(self, path: str, over: int) -> socket.socket:
        """A stream to the agent."""
        near = await self._entered().commands(self._asking(over)) if self.is_near else None
        return near or await super()._stream(path, over)

    async def _way(self, path: str, over: int) -> socket.socket | ByteStream:
        """A channel for values."""
        near = await self._entered().values(self._asking(over)) if self.is_near else None
        return near or await super()._way(path, over)

    def _entered(self) -> AgentDoor:
        if self._door is None:
            self._door = AgentDoor(self.name, self.through)
        return self._door

    def _asking(self, over: int) -> Asking:
        """How the door is asked for, over the present connection: an earlier one may have ended since."""
        return partial(super()._way, f"{self._runtime}/{VALUES}", over)

    async def _shut(self) -> None:
        """Wait for the ends of commands by which the door was reached."""
        if self._door is not None:
            await self._door.close()
