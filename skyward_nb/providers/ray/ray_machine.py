"""A node of a placement group as a machine of a pool."""

from __future__ import annotations

from skyward_nb.bootstrap.environment import Environment
from skyward_nb.providers.far.engine_machine import EngineAllocation, EngineMachine
from skyward_nb.providers.far.host_setup import folder_of
from skyward_nb.providers.ray.group import NodeGroup
from skyward_nb.providers.ray.group_words import keep_of
from skyward_nb.providers.ray.ray_line import RayLine


class RayMachine(EngineMachine):
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
        self.given: EngineAllocation = group
        self._actor = actor
        # Ray's own client comes from elsewhere, which has no address of the cluster's network.
        self.is_near: bool = not group.record.access.address.startswith("ray://")

    async def why_ended(self) -> str:
        """Why its actor is gone, as Ray says; "" if it is not, or Ray does not answer."""
        return await self.group.why_ended(self._actor)
