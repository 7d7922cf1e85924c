"""The machines of a SkyPilot cluster as machines of a pool, all or none; and clusters that were left."""

from __future__ import annotations

import asyncio

from skyward_nb.providers.far.engine_record import listing_of
from skyward_nb.providers.far.host_setup import made_ready
from skyward_nb.providers.far.take_down import EngineSweep, end_orphans, swept_first
from skyward_nb.providers.maker_process import MakerProcess
from skyward_nb.providers.provider_protocol import AgentGone, Tell
from skyward_nb.providers.skypilot.cluster_records import ClusterRecord
from skyward_nb.providers.skypilot.cluster_request import keep_of
from skyward_nb.providers.skypilot.sky_cluster import RentedCluster
from skyward_nb.providers.skypilot.skypilot_machine import RentedHostLine, SkyPilotMachine
from skyward_nb.providers.ssh.dialer import Dialer
from skyward_nb.words.errors import HostError, HostNotReady, StartError
from skyward_nb.words.hosts import Host, SSHAccess
from skyward_nb.words.spec import PoolSpec


async def acquire(spec: PoolSpec, pool_id: str, tell: Tell) -> tuple[SkyPilotMachine, ...]:
    """The machines of a new pool, head first; raises a `SkyError`, and nothing is left then."""
    assert spec.skypilot is not None
    await swept_first(sweep_clusters(), tell)
    record = ClusterRecord(
        pool_id=pool_id,
        access=spec.skypilot,
        maker=MakerProcess.this(),
        listing=listing_of(pool_id),
        nodes=spec.nodes,
    )
    cluster = RentedCluster(record)
    try:
        await cluster.launch(spec, tell)
        machines = await _machines(spec, cluster, tell)
    except BaseException:
        if ClusterRecord.find(pool_id) is not None:  # else nothing was asked for
            await asyncio.shield(cluster.take_down())
        raise
    cluster.reached()
    return machines


async def _machines(
    spec: PoolSpec, cluster: RentedCluster, tell: Tell
) -> tuple[SkyPilotMachine, ...]:
    lines = lines_of(cluster.record, is_new=True)
    numbers = {line: number for number, line in enumerate(lines)}
    try:
        readied = await made_ready(spec, lines, tell)
    except (HostError, HostNotReady) as fault:
        # The machines may be gone meanwhile: that is the reason then.
        if why := await cluster.why_ended():
            raise StartError(spec.name, why) from fault
        raise
    return tuple(
        SkyPilotMachine(spec.name, numbers[line], line, cluster, environment, spec.max_cost)
        for line, environment in readied
    )


def lines_of(record: ClusterRecord, *, is_new: bool = False) -> list[RentedHostLine]:
    """The lines to a cluster's machines; the first host key of each is pinned under the machine's own name."""
    hosts = tuple(Host(name) for name in record.hosts)
    access = SSHAccess(hosts=hosts, config=str(record.ssh_config()), trust="first")
    dialer = Dialer(access)
    return [
        RentedHostLine(host, dialer, keep_of(record.pool_id, number), is_new=is_new)
        for number, host in enumerate(hosts)
    ]


def find(spec: PoolSpec, pool_id: str) -> tuple[SkyPilotMachine, ...]:
    """The machines of an existing pool; raises `AgentGone` if it has no cluster any more."""
    record = ClusterRecord.find(pool_id)
    if record is None or not record.is_up:
        raise AgentGone
    cluster = RentedCluster(record)
    return tuple(
        SkyPilotMachine(spec.name, number, line, cluster)
        for number, line in enumerate(lines_of(record))
    )


async def sweep_clusters() -> EngineSweep:
    """Take down the clusters of pools that nobody can find."""
    return await end_orphans(
        ClusterRecord.every(),
        lambda record: f"cluster {record.cluster}",
        lambda record: RentedCluster(record).end_orphan(),
    )
