"""Leftovers of pools that are gone, here, with AWS, in Slurm's queue and on Kubernetes: found, and removed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from skyward_nb.providers.aws import rental_records
from skyward_nb.providers.folders import sweep as sweep_folders
from skyward_nb.providers.kubernetes.pod_records import PodRecord
from skyward_nb.providers.orphans import Swept
from skyward_nb.providers.slurm import job_records

if TYPE_CHECKING:
    from skyward_nb.providers.aws.sweep import SweepReport
    from skyward_nb.providers.kubernetes.orphan_jobs import PodSweep
    from skyward_nb.providers.slurm.sweep import JobSweep


@dataclass(frozen=True)
class CleanupReport:
    """Leftovers here; with AWS if anything was ever rented there, jobs of Slurm and Jobs of Kubernetes if any was submitted."""

    here: Swept
    rented: SweepReport | None = None
    jobs: JobSweep | None = None
    pods: PodSweep | None = None

    def __str__(self) -> str:
        others = [("AWS", self.rented), ("Slurm", self.jobs), ("Kubernetes", self.pods)]
        found = [(name, report) for name, report in others if report is not None]
        if not found:
            return str(self.here)
        lines = [f"here: {self.here}"]
        for name, report in found:
            lines.append(f"{name}: {report}")
            if report.foreign:
                lines.append(f"{name}: not yours to end from here: {', '.join(report.foreign)}")
        return "\n".join(lines)


def clean_up() -> CleanupReport:
    """Remove what pools that are gone have left; raises `MissingDependency` where AWS cannot be asked."""
    from skyward_nb.providers.loop_thread import LOOP

    here = sweep_folders(thoroughly=True)
    rented, jobs, pods = None, None, None
    if job_records.used():
        from skyward_nb.providers.slurm.sweep import sweep_jobs

        jobs = LOOP.start(sweep_jobs()).future.result()
    if PodRecord.every():
        from skyward_nb.providers.kubernetes.orphan_jobs import sweep_pods

        pods = LOOP.start(sweep_pods()).future.result()
    if rental_records.used() or rental_records.entries():
        from skyward_nb.providers.aws.sweep import sweep

        rented = LOOP.start(sweep()).future.result()
    return CleanupReport(here, rented, jobs, pods)
