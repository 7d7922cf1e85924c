"""The provider of nodes of a Slurm cluster."""

from __future__ import annotations

from collections.abc import Sequence

from skyward_nb.providers.far.far_provider import FarProvider
from skyward_nb.providers.provider_protocol import Machine, Readied, ReplacementRequest, Tell
from skyward_nb.words.offers import Bill
from skyward_nb.words.spec import PoolSpec


class SlurmProvider(FarProvider):
    """Has Slurm run one job for a pool, with a keeper on each of its nodes."""

    name = "slurm"

    async def acquire(self, spec: PoolSpec, pool_id: str, tell: Tell) -> tuple[Machine, ...]:
        """Submit a job, wait for it and make its nodes ready, all or none; raises a `SkyError`, with none left."""
        from skyward_nb.providers.slurm.job_machines import acquire

        return await acquire(spec, pool_id, tell)

    def find(self, spec: PoolSpec, pool_id: str) -> tuple[Machine, ...]:
        """The machines of an existing pool; raises `AgentGone` if it has no job any more."""
        from skyward_nb.providers.slurm.job_machines import find

        return find(spec, pool_id)

    async def replace(
        self, spec: PoolSpec, pool_id: str, lack: ReplacementRequest, readied: Readied, tell: Tell
    ) -> tuple[Machine, ...]:
        """Another job in place of one that was preempted, has failed or is about to end: see `Replaces`."""
        from skyward_nb.providers.slurm.job_machines import replaced

        return await replaced(spec, pool_id, lack, readied, tell)

    def conducted(self, pool_id: str) -> None:
        """Nothing: no record says whose the job is."""

    def left(self, pool_id: str) -> None:
        """Nothing: no record says whose the job is."""

    def cheaper(self, pool_id: str, lost: Sequence[Machine], bill: Bill) -> Bill:
        """The bill as it was: Slurm has none."""
        del pool_id, lost
        return bill
