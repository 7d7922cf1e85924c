"""The provider of nodes of a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skyward_nb.providers.provider_protocol import Tell
from skyward_nb.words.spec import PoolSpec

if TYPE_CHECKING:
    from skyward_nb.providers.ray.ray_machine import RayMachine


class RayProvider:
    """Has a Ray cluster hold a placement group for a pool, with an actor on each of its nodes."""

    name = "ray"
    shares_files = False

    def check(self, spec: PoolSpec) -> None:
        """Raise `OptionError` for an image that no node can have."""
        from skyward_nb.bootstrap.requirements import check_minor

        check_minor(spec.image)

    async def acquire(self, spec: PoolSpec, pool_id: str, tell: Tell) -> tuple[RayMachine, ...]:
        """Ask for a group, wait for it and make its nodes ready, all or none; raises a `SkyError`, with none left."""
        from skyward_nb.providers.ray.group_machines import acquire

        return await acquire(spec, pool_id, tell)

    def find(self, spec: PoolSpec, pool_id: str) -> tuple[RayMachine, ...]:
        """The machines of an existing pool; raises `AgentGone` if it has no group any more."""
        from skyward_nb.providers.ray.group_machines import find

        return find(spec, pool_id)
