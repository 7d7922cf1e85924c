"""The provider of nodes of a Ray cluster."""

from __future__ import annotations

from skyward_nb.providers.far.far_provider import FarProvider
from skyward_nb.providers.provider_protocol import Machine, Tell
from skyward_nb.words.spec import PoolSpec


class RayProvider(FarProvider):
    """Has a Ray cluster hold a placement group for a pool, with an actor on each of its nodes."""

    name = "ray"

    async def acquire(self, spec: PoolSpec, pool_id: str, tell: Tell) -> tuple[Machine, ...]:
        """Ask for a group, wait for it and make its nodes ready, all or none; raises a `SkyError`, with none left."""
        from skyward_nb.providers.ray.group_machines import acquire

        return await acquire(spec, pool_id, tell)

    def find(self, spec: PoolSpec, pool_id: str) -> tuple[Machine, ...]:
        """The machines of an existing pool; raises `AgentGone` if it has no group any more."""
        from skyward_nb.providers.ray.group_machines import find

        return find(spec, pool_id)
