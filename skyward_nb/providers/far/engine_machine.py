"""A machine of several that an engine has given at once, and takes back at once; its agent is reached by TCP, too."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import Any, Protocol, TypeVar

from skyward_nb.providers.far.direct_connection import Asking, DirectConnection, ThroughFor
from skyward_nb.providers.far.far_machine import VALUES, Opening
from skyward_nb.providers.far.keeper import KeptMachine
from skyward_nb.providers.provider_protocol import AgentGone, MachineEnded
from skyward_nb.store.byte_streams import ByteStream

T = TypeVar("T")
_ASK_EACH = 3.0
"""Seconds between questions to the engine while a channel is opened."""


class EngineAllocation(Protocol):
    """What an engine has given for a pool: a job, a Job, a group."""

    was_told: bool
    """Whether an agent of it was reached, and thus told to stop."""

    async def give_back(self) -> str:
        """End it, once; what of it may run on, in words."""
        ...


class EngineMachine(KeptMachine):
    """A machine of an allocation that all machines of the pool share.

    Commands and values go by a direct connection to the agent, and over the line where there is none.
    """

    given: EngineAllocation
    through: ThroughFor | None = None
    """By which command an address of the machine is reached; None: from here."""
    is_near: bool = True
    """Whether addresses of the machine may be reached at all."""
    _direct: DirectConnection | None = None

    async def why_ended(self) -> str:
        """Why it has ended, as its engine says; "" if it has not, or the engine does not answer."""
        raise NotImplementedError

    async def _opened(self, name: str, opening: Opening[T]) -> T:
        """Open a channel; raises `MachineEnded` once the engine says that the machine has ended.

        The engine is asked while that takes, too: its commands wait for minutes for a machine that does not answer.
        """
        going = asyncio.ensure_future(super()._opened(name, opening))
        is_taken = False
        try:
            while not (await asyncio.wait([going], timeout=_ASK_EACH))[0]:
                await self._raise_if_ended(going)
            opened = going.result()
            is_taken = True
        except MachineEnded:
            raise
        except (OSError, AgentGone):
            if why := await self.why_ended():
                raise MachineEnded(why) from None
            raise
        finally:
            if not is_taken:  # it may have come in the same moment as its machine's end
                going.add_done_callback(_hang_up)
            going.cancel()
        self.given.was_told = True
        return opened

    async def _raise_if_ended(self, going: asyncio.Future[T]) -> None:
        """Ask the engine, for as long as a channel is not open yet."""
        asking = asyncio.ensure_future(self.why_ended())
        try:
            await asyncio.wait([going, asking], return_when=asyncio.FIRST_COMPLETED)
            if asking.done() and (why := asking.result()):
                raise MachineEnded(why)
        finally:
            asking.cancel()

    async def agent_log(self, most: int) -> str:
        """The end of the agent's log; "" once its machine has ended."""
        if await self.why_ended():
            return ""
        return await super().agent_log(most)

    async def release(self) -> str | None:
        """Give the allocation back with all of its machines, and wait until it is gone."""
        try:
            return await self.given.give_back()
        finally:
            await self.let_go()

    async def let_go(self) -> None:
        """Hang up."""
        self._store.close()
        await self._line.close()
        if self._direct is not None:  # its commands are waited for
            await self._direct.close()

    # ── direct connections ──────────────────────────────────────────────────────────────

    async def _stream(self, path: str, over: int) -> socket.socket:
        """A stream to the agent."""
        near = await self._entered().commands(self._asking(over)) if self.is_near else None
        return near or await super()._stream(path, over)

    async def _way(self, path: str, over: int) -> socket.socket | ByteStream:
        """A channel for values."""
        near = await self._entered().values(self._asking(over)) if self.is_near else None
        return near or await super()._way(path, over)

    async def _again(self) -> socket.socket | None:
        """A stream as the one before it was, also while the engine does not answer. The agent shows its key."""
        if self._direct is None or not self.is_near:
            return None
        return await self._direct.again()

    def _entered(self) -> DirectConnection:
        if self._direct is None:
            self._direct = DirectConnection(self.name, self.through)
        return self._direct

    def _asking(self, over: int) -> Asking:
        """How a direct connection is asked for, over the present connection: an earlier one may have ended since."""
        return partial(super()._way, f"{self._runtime}/{VALUES}", over)


def _hang_up(going: asyncio.Future[Any]) -> None:
    """Close a channel that nobody takes."""
    if not going.cancelled() and going.exception() is None:
        going.result().close()
