"""The provider of machines that SkyPilot rents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skyward_nb.providers.provider_protocol import Tell
from skyward_nb.words.spec import PoolSpec

if TYPE_CHECKING:
    from skyward_nb.providers.skypilot.skypilot_machine import SkyPilotMachine


class SkyPilotProvider:
    """Has SkyPilot launch one cluster for a pool, with a keeper on each of its machines."""

    name = "sky"
    shares_files = False

    def check(self, spec: PoolSpec) -> None:
        """Raise `OptionError` for an image that no machine can have."""
        from skyward_nb.bootstrap.requirements import check_minor

        check_minor(spec.image)

    async def acquire(
        self, spec: PoolSpec, pool_id: str, tell: Tell
    ) -> tuple[SkyPilotMachine, ...]:
        """Launch a cluster and make its machines ready, all or none; raises a `SkyError`, with none left."""
        from skyward_nb.providers.skypilot.cluster_machines import acquire

        return await acquire(spec, pool_id, tell)

    def find(self, spec: PoolSpec, pool_id: str) -> tuple[SkyPilotMachine, ...]:
        """The machines of an existing pool; raises `AgentGone` if it has no cluster any more."""
        from skyward_nb.providers.skypilot.cluster_machines import find

        return find(spec, pool_id)
