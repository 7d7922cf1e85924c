"""The pods of a Job as machines of a pool, all or none."""

from __future__ import annotations

import asyncio

from skyward_nb.providers.far.engine_record import listing_of
from skyward_nb.providers.far.exec_line import here
from skyward_nb.providers.far.host_setup import made_ready
from skyward_nb.providers.far.take_down import swept_first
from skyward_nb.providers.kubernetes.cluster import KubernetesCluster
from skyward_nb.providers.kubernetes.orphan_jobs import cluster_of, sweep_pods
from skyward_nb.providers.kubernetes.pod_machine import PodMachine, line_to
from skyward_nb.providers.kubernetes.pod_records import PodRecord
from skyward_nb.providers.kubernetes.pool_job import PoolJob
from skyward_nb.providers.maker_process import MakerProcess
from skyward_nb.providers.provider_protocol import AgentGone, Tell
from skyward_nb.words.errors import HostError, HostNotReady, StartError
from skyward_nb.words.provider_access import KubernetesAccess
from skyward_nb.words.spec import PoolSpec


async def acquire(spec: PoolSpec, pool_id: str, tell: Tell) -> tuple[PodMachine, ...]:
    """The machines of a new pool, head first; raises a `SkyError`, and nothing is left then."""
    access = spec.kubernetes or KubernetesAccess()
    await swept_first(sweep_pods(), tell)
    record = PodRecord(pool_id=pool_id, maker=MakerProcess.this(), listing=listing_of(pool_id))
    cluster = KubernetesCluster(here(), access.context or "", access.namespace or "")
    job = PoolJob(record, cluster, may_exist=False)
    try:
        pods = await job.begin(spec, tell, line_to)
        return await _machines(spec, job, pods, tell)
    except BaseException:
        await asyncio.shield(job.give_back())
        raise


async def _machines(
    spec: PoolSpec, job: PoolJob, pods: list[str], tell: Tell
) -> tuple[PodMachine, ...]:
    lines = [line_to(job.record, pod, is_new=True) for pod in pods]
    try:
        readied = await made_ready(spec, lines, tell)
    except (HostError, HostNotReady) as fault:
        # A pod may have ended meanwhile: that is the reason then.
        for pod in pods:
            if why := await job.why_ended(pod):
                raise StartError(spec.name, why) from fault
        raise
    return tuple(
        PodMachine(spec.name, node, line, job, environment)
        for node, (line, environment) in enumerate(readied)
    )


def find(spec: PoolSpec, pool_id: str) -> tuple[PodMachine, ...]:
    """The machines of an existing pool; raises `AgentGone` if it has no Job any more."""
    record = PodRecord.find(pool_id)
    if record is None or not record.pods:
        raise AgentGone
    job = PoolJob(record, cluster_of(record))
    return tuple(
        PodMachine(spec.name, number, line_to(record, pod), job)
        for number, pod in enumerate(record.pods)
    )
