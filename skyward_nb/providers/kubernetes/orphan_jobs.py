"""Jobs whose makers were killed while they waited: deleted before the next one is created, and by a sweep."""

from __future__ import annotations

from dataclasses import dataclass, field

from skyward_nb.protocol.events import Remark
from skyward_nb.providers.base import Tell
from skyward_nb.providers.far.exec_line import here
from skyward_nb.providers.kubernetes.cluster import ClusterRefused, ClusterSilent, KubernetesCluster
from skyward_nb.providers.kubernetes.manifest import job_name
from skyward_nb.providers.kubernetes.pod_records import PodRecord


def cluster_of(record: PodRecord) -> KubernetesCluster:
    """The cluster in which a record's Job was created."""
    return KubernetesCluster(here(), record.context, record.namespace)


@dataclass
class PodSweep:
    """Jobs that a sweep deleted, and those it left, in words, with the reasons; `foreign` are none: only records are read."""

    deleted: list[str] = field(default_factory=list[str])
    left: list[str] = field(default_factory=list[str])
    foreign: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = [f"deleted leftovers: {', '.join(self.deleted)}"] if self.deleted else []
        if self.left:
            said.append(f"not confirmed to be gone: {', '.join(self.left)}")
        return "; ".join(said) or "nothing was left"


async def sweep_pods() -> PodSweep:
    """Delete the Jobs of pools that nobody can find."""
    found = PodSweep()
    await delete_orphans(lambda _: None, found)
    return found


async def delete_orphans(tell: Tell, found: PodSweep | None = None) -> None:
    """Delete the Jobs of pools that nobody can find: their makers are dead, and they are not listed."""
    found = found or PodSweep()
    for record in PodRecord.every():
        if not record.is_orphan:
            continue
        cluster, name = cluster_of(record), job_name(record.pool_id)
        try:
            view = await cluster.look(record.pool_id)
            if view.exists or view.pods:
                await cluster.delete(record.pool_id)
                found.deleted.append(f"Job {name} (pool {record.pool_id})")
                tell(
                    Remark(
                        f"Job {name} of an earlier pool, {record.pool_id}, was left: it is deleted"
                    )
                )
        except (ClusterSilent, ClusterRefused) as error:
            found.left.append(f"Job {name} ({error})")
            continue
        record.remove()
