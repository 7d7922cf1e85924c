"""Leftovers of pools that are gone, here, with AWS and with the engines of other pools: found, and removed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from skyward_nb.providers.aws import rental_records
from skyward_nb.providers.far.engine_record import EngineRecord
from skyward_nb.providers.far.take_down import EngineSweep
from skyward_nb.providers.folders import sweep as sweep_folders
from skyward_nb.providers.kubernetes.pod_records import PodRecord
from skyward_nb.providers.orphans import Swept
from skyward_nb.providers.ray.group_records import GroupRecord
from skyward_nb.providers.skypilot.cluster_records import ClusterRecord
from skyward_nb.providers.slurm.job_records import JobRecord

if TYPE_CHECKING:
    from skyward_nb.providers.aws.sweep import SweepReport


@dataclass(frozen=True)
class CleanupReport:
    """Leftovers here; with AWS if anything was ever rented there, and with each of `engines` that was ever asked."""

    here: Swept
    rented: SweepReport | None = None
    engines: Mapping[str, EngineSweep] = field(default_factory=dict[str, EngineSweep])

    def of(self, kind: type[EngineRecord]) -> EngineSweep:
        """What was left with an engine."""
        return self.engines.get(kind.title) or EngineSweep()

    @property
    def reports(self) -> dict[str, SweepReport | EngineSweep]:
        """Those of others than this machine, by their names."""
        return {**({"AWS": self.rented} if self.rented is not None else {}), **self.engines}

    def __str__(self) -> str:
        if not self.reports:
            return str(self.here)
        lines = [f"here: {self.here}"]
        for name, report in self.reports.items():
            lines.append(f"{name}: {report}")
            if report.foreign:
                lines.append(f"{name}: not yours to end from here: {', '.join(report.foreign)}")
        return "\n".join(lines)


def clean_up(*, ends_stopped: bool = False) -> CleanupReport:
    """Remove what pools that are gone have left, with `ends_stopped` machines that wait for a later one, too; raises `MissingDependency` where AWS cannot be asked."""
    from skyward_nb.providers.loop_thread import LOOP

    here, rented = sweep_folders(thoroughly=True), None
    engines = LOOP.start(_swept()).future.result()
    if rental_records.used() or rental_records.entries():
        from skyward_nb.providers.aws.sweep import sweep

        rented = LOOP.start(sweep(ends_stopped=ends_stopped)).future.result()
    return CleanupReport(here, rented, engines)


def stopped_words(sweep: str) -> str:
    """A line on machines that are stopped for a later pool, and how `sweep` ends them; "" without any. AWS is not asked."""
    known = [each.record for each in rental_records.entries() if each.record.state == "stopped"]
    # A timer ends them then, even if no sweep has looked since.
    now = time.time()
    records = [each for each in known if each.warmth is None or (each.warmth.until or now) >= now]
    names = [machine.instance for each in records for machine in each.machines]
    return f"stopped for a later pool: {', '.join(names)}; {sweep} now ends them" if names else ""


async def _swept() -> dict[str, EngineSweep]:
    """Sweep with all engines that were ever asked, side by side."""
    from skyward_nb.providers.kubernetes.orphan_jobs import sweep_pods
    from skyward_nb.providers.ray.group_machines import sweep_groups
    from skyward_nb.providers.skypilot.cluster_machines import sweep_clusters
    from skyward_nb.providers.slurm.job_sweep import sweep_jobs

    ways: dict[type[EngineRecord], Callable[[], Awaitable[EngineSweep]]] = {
        JobRecord: sweep_jobs,
        PodRecord: sweep_pods,
        GroupRecord: sweep_groups,
        ClusterRecord: sweep_clusters,
    }
    asked = {kind.title: sweep for kind, sweep in ways.items() if kind.used()}
    return dict(zip(asked, await asyncio.gather(*(each() for each in asked.values())), strict=True))
