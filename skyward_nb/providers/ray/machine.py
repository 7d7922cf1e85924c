"""A node of a placement group as a machine of a pool."""

from __future__ import annotations

from typing import TypeVar

from skyward_nb.bootstrap.environment import Environment
from skyward_nb.providers.base import AgentGone, MachineEnded
from skyward_nb.providers.far.door_machine import DoorMachine
from skyward_nb.providers.far.far_machine import Opening
from skyward_nb.providers.far.host_setup import folder_of
from skyward_nb.providers.ray.group import NodeGroup
from skyward_nb.providers.ray.group_words import keep_of
from skyward_nb.providers.ray.line import RayLine

T = TypeVar("T")


class RayMachine(DoorMachine):
    """A node of a pool's group; `group` is that of all of them."""

    def __init__(
        self,
        pool: str,
        node: int,
        actor: int,
        line: RayLine,
        group: NodeGroup,
        environment: Environment | None = None,
    ) -> None:
        pool_id = group.record.pool_id
        super().__init__(pool, folder_of(pool_id, node), node, line, environment)
        self.keep: str = keep_of(pool_id, actor)
        self.group: NodeGroup = group
        self._actor = actor
        # Ray's own client comes from elsewhere, which has no address of the cluster's network.
        self.is_near: bool = not group.record.access.address.startswith("ray://")

    async def _opened(self, name: str, opening: Opening[T]) -> T:
        """Open a channel; raises `MachineEnded` if Ray says that the actor is gone."""
        try:
            opened = await super()._opened(name, opening)
        except (OSError, AgentGone):
            if why := await self.why_ended():
                raise MachineEnded(why) from None
            raise
        self.group.was_told = True
        return opened

    async def why_ended(self) -> str:
        """Why its actor is gone, as Ray says; "" if it is not, or Ray does not answer."""
        return await self.group.why_ended(self._actor)

    async def agent_log(self, most: int) -> str:
        """The end of the agent's log; "" once its actor is gone."""
        if await self.why_ended():
            return ""
        return await super().agent_log(most)

    async def release(self) -> str | None:
        """End the group with all of its machines, and wait until it is removed."""
        try:
            return await self.group.give_back()
        finally:
            self._store.close()
            await self._line.close()
