"""Records of jobs on disk."""

from __future__ import annotations

from typing import ClassVar

from skyward_nb.providers.far.engine_record import EngineRecord
from skyward_nb.words.provider_access import ContainerRuntime, SlurmAccess


class JobRecord(EngineRecord, frozen=True, kw_only=True):
    """The job of a pool; `job` is "" until Slurm has told its id, `nodes` are empty until it runs.

    `started` is Slurm's time of its start. With `is_current`, the job was there before the pool, and is not the
    pool's to cancel. `before` is an earlier job of the pool while another one is to take its place. `runtime` runs
    the container of each command, if there is one.
    """

    engine: ClassVar[str] = "slurm"
    title: ClassVar[str] = "Slurm"
    access: SlurmAccess
    job: str = ""
    nodes: tuple[str, ...] = ()
    started: str = ""
    before: str = ""
    runtime: ContainerRuntime | None = None
    is_current: bool = False

    @property
    def is_answered(self) -> bool:
        """See `EngineRecord.is_answered`."""
        return bool(self.job)
