"""A machine of several that an engine has given at once, and takes back at once."""

from __future__ import annotations

import asyncio
from typing import Protocol, TypeVar

from skyward_nb.providers.far.direct_machine import DirectMachine
from skyward_nb.providers.far.far_machine import Opening
from skyward_nb.providers.provider_protocol import AgentGone, MachineEnded

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


class EngineMachine(DirectMachine):
    """A machine of an allocation that all machines of the pool share."""

    given: EngineAllocation

    async def why_ended(self) -> str:
        """Why it has ended, as its engine says; "" if it has not, or the engine does not answer."""
        raise NotImplementedError

    async def _opened(self, name: str, opening: Opening[T]) -> T:
        """Open a channel; raises `MachineEnded` once the engine says that the machine has ended.

        The engine is asked while that takes, too: its commands wait for minutes for a machine that does not answer.
        """
        going = asyncio.ensure_future(super()._opened(name, opening))
        try:
            while not (await asyncio.wait([going], timeout=_ASK_EACH))[0]:
                await self._raise_if_ended(going)
            opened = going.result()
        except MachineEnded:
            raise
        except (OSError, AgentGone):
            if why := await self.why_ended():
                raise MachineEnded(why) from None
            raise
        finally:
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
        await self._shut()
