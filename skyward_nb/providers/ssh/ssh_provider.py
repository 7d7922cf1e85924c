"""The provider of hosts reached by SSH; asyncssh is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skyward_nb.providers.provider_protocol import Tell
from skyward_nb.words.spec import PoolSpec

if TYPE_CHECKING:
    from skyward_nb.providers.far.far_machine import FarMachine


class SSHProvider:
    """Provides the hosts that a spec names, or as many healthy ones as it has nodes."""

    name = "ssh"
    shares_files = False

    def check(self, spec: PoolSpec) -> None:
        """Raise `OptionError` for an image that no host can have."""
        from skyward_nb.bootstrap.requirements import check_minor

        check_minor(spec.image)

    async def acquire(self, spec: PoolSpec, pool_id: str, tell: Tell) -> tuple[FarMachine, ...]:
        """Log in to hosts and make them ready; raises `HostError` with the fault of each."""
        from skyward_nb.providers.ssh.host_machines import acquire

        return await acquire(spec, pool_id, tell)

    def find(self, spec: PoolSpec, pool_id: str) -> tuple[FarMachine, ...]:
        """The machines of an existing pool; `connect` finds out whether they live."""
        from skyward_nb.providers.ssh.host_machines import find

        return find(spec, pool_id)
