"""Hosts reached by SSH as machines of a pool, all or none."""

from __future__ import annotations

from skyward_nb.providers.far.far_machine import FarMachine
from skyward_nb.providers.far.host_setup import folder_of, made_ready
from skyward_nb.providers.provider_protocol import Tell
from skyward_nb.providers.ssh.dialer import Dialer
from skyward_nb.providers.ssh.ssh_line import HostLine
from skyward_nb.words.spec import PoolSpec


async def acquire(spec: PoolSpec, pool_id: str, tell: Tell) -> tuple[FarMachine, ...]:
    """The machines of a new pool, head first; raises `HostError` or `HostNotReady`."""
    assert spec.ssh is not None
    dialer = Dialer(spec.ssh)
    lines = [HostLine(host, dialer) for host in spec.ssh.hosts]
    return tuple(
        FarMachine(spec.name, folder_of(pool_id, node), node, line, environment)
        for node, (line, environment) in enumerate(await made_ready(spec, lines, tell))
    )


def find(spec: PoolSpec, pool_id: str) -> tuple[FarMachine, ...]:
    """The machines of a pool that is up by the spec; whether they live, `connect` finds out."""
    assert spec.ssh is not None
    dialer = Dialer(spec.ssh)
    hosts = spec.ssh.hosts[: spec.nodes]
    return tuple(
        FarMachine(spec.name, folder_of(pool_id, node), node, HostLine(host, dialer))
        for node, host in enumerate(hosts)
    )
