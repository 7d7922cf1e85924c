"""Leftovers of pools that are gone, here and with AWS: found, and removed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from skyward_nb.providers.aws import rental_records
from skyward_nb.providers.folders import sweep as sweep_folders
from skyward_nb.providers.orphans import Swept

if TYPE_CHECKING:
    from skyward_nb.providers.aws.sweep import SweepReport


@dataclass(frozen=True)
class CleanupReport:
    """Leftovers on this machine, and with AWS if anything was ever rented there."""

    here: Swept
    rented: SweepReport | None = None

    def __str__(self) -> str:
        if self.rented is None:
            return str(self.here)
        lines = [f"here: {self.here}", f"AWS: {self.rented}"]
        if others := self.rented.foreign:
            lines.append(f"AWS: not yours to end from here: {', '.join(others)}")
        return "\n".join(lines)


def clean_up() -> CleanupReport:
    """Remove what pools that are gone have left; raises `MissingDependency` where AWS cannot be asked."""
    here = sweep_folders(thoroughly=True)
    if not (rental_records.used() or rental_records.entries()):
        return CleanupReport(here)
    from skyward_nb.providers.aws.sweep import sweep
    from skyward_nb.providers.loop_thread import LOOP

    return CleanupReport(here, LOOP.start(sweep()).future.result())
