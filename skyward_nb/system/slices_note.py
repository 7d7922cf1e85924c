"""The file by which a pool's folder says that GPUs were cut into slices for it (`system/mig_partition`)."""

from __future__ import annotations

from pathlib import Path

NOTE = "slices.json"

PATIENCE = 120.0
"""Seconds that NVIDIA's tool may take: the driver initializes a GPU again when MIG is turned on or off."""


def is_noted(folder: Path) -> bool:
    """Whether a pool has cut GPUs that are not restored, or is about to cut some."""
    return (folder / NOTE).exists()


def restore(folder: Path) -> str:
    """Restore the GPUs that a pool has cut; what could not be restored, in the tool's own words."""
    if not is_noted(folder):
        return ""
    from skyward_nb.system import mig_partition  # seldom, and takes a moment

    return mig_partition.undo(folder)
