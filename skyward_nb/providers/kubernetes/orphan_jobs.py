"""Jobs of pools that are gone: deleted before the next one is created, and by a sweep."""

from __future__ import annotations

from skyward_nb.providers.far.exec_line import here
from skyward_nb.providers.far.take_down import EngineSweep, end_orphans
from skyward_nb.providers.kubernetes.cluster import KubernetesCluster
from skyward_nb.providers.kubernetes.manifest import job_name
from skyward_nb.providers.kubernetes.pod_records import PodRecord
from skyward_nb.providers.kubernetes.pool_job import PoolJob


def cluster_of(record: PodRecord) -> KubernetesCluster:
    """The cluster in which a record's Job was created."""
    return KubernetesCluster(here(record.environ), record.context, record.namespace)


async def sweep_pods() -> EngineSweep:
    """Delete the Jobs of pools that nobody can find."""
    return await end_orphans(
        PodRecord.every(),
        lambda record: f"Job {job_name(record.pool_id)}",
        lambda record: PoolJob(record, cluster_of(record)).end_orphan(),
    )
