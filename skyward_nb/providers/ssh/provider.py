"""Gives hosts that one can log in to. What speaks SSH is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skyward_nb.providers.base import Tell
from skyward_nb.words.spec import PoolSpec

if TYPE_CHECKING:
    from skyward_nb.providers.ssh.machine import SSHMachine


class SSHProvider:
    """Gives the hosts that a spec names, or as many healthy ones of them as it has nodes."""

    name = "ssh"
    shares_files = False

    def check(self, spec: PoolSpec) -> None:
        """Raise `OptionError` for an image that no host could have."""
        from skyward_nb.bootstrap.requirements import check_minor

        check_minor(spec.image)

    async def acquire(self, spec: PoolSpec, pool_id: str, tell: Tell) -> tuple[SSHMachine, ...]:
        """Log in to hosts and make them ready; raises `HostError` with what hinders each."""
        from skyward_nb.providers.ssh.host_setup import acquire

        return await acquire(spec, pool_id, tell)

    def find(self, spec: PoolSpec, pool_id: str) -> tuple[SSHMachine, ...]:
        """The machines of a pool that was made before; whether they are there, reaching them tells."""
        from skyward_nb.providers.ssh.host_setup import find

        return find(spec, pool_id)
