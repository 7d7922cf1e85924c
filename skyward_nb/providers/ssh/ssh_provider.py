"""The provider of hosts reached by SSH; asyncssh is imported when it is first used."""

from __future__ import annotations

from skyward_nb.providers.far.far_provider import FarProvider
from skyward_nb.providers.provider_protocol import Machine, Tell
from skyward_nb.words.spec import PoolSpec


class SSHProvider(FarProvider):
    """Provides the hosts that a spec names, or as many healthy ones as it has nodes."""

    name = "ssh"

    async def acquire(self, spec: PoolSpec, pool_id: str, tell: Tell) -> tuple[Machine, ...]:
        """Log in to hosts and make them ready; raises `HostError` with the fault of each."""
        from skyward_nb.providers.ssh.host_machines import acquire

        return await acquire(spec, pool_id, tell)

    def find(self, spec: PoolSpec, pool_id: str) -> tuple[Machine, ...]:
        """The machines of an existing pool; `connect` finds out whether they live."""
        from skyward_nb.providers.ssh.host_machines import find

        return find(spec, pool_id)
