"""The folder of a rented machine's own fast disk. Pure: each start of a pool looks for it."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

FOLDER = Path("/mnt/skyward/scratch")
"""The user who logs in owns it, where the machine has such a disk."""
JOINED = Path("/opt/dlami/nvme")
"""The folder that AWS's own GPU image makes of all such disks."""


def is_within(folder: str | None) -> bool:
    """Whether a folder, as a machine's shell spells it, lies on such a disk."""
    return folder is not None and any(
        PurePosixPath(folder).is_relative_to(each) for each in (FOLDER, JOINED)
    )
