"""The provider of machines that SkyPilot rents."""

from __future__ import annotations

from skyward_nb.providers.far.far_provider import FarProvider
from skyward_nb.providers.provider_protocol import Machine, Tell
from skyward_nb.words.spec import PoolSpec


class SkyPilotProvider(FarProvider):
    """Has SkyPilot launch one cluster for a pool, with a keeper on each of its machines."""

    name = "sky"

    async def acquire(self, spec: PoolSpec, pool_id: str, tell: Tell) -> tuple[Machine, ...]:
        """Launch a cluster and make its machines ready, all or none; raises a `SkyError`, with none left."""
        from skyward_nb.providers.skypilot.cluster_machines import acquire

        return await acquire(spec, pool_id, tell)

    def find(self, spec: PoolSpec, pool_id: str) -> tuple[Machine, ...]:
        """The machines of an existing pool; raises `AgentGone` if it has no cluster any more."""
        from skyward_nb.providers.skypilot.cluster_machines import find

        return find(spec, pool_id)
