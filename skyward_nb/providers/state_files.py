"""Records that must outlive this process, and a crash of the machine: where they are, and how they are written."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import platformdirs

_NEW = ".new"
"""The end of the names of files that are not whole yet."""


def state_folder(provider: str) -> Path:
    """The folder of a provider's records, in `SKYWARD_STATE_DIR` or the user's state folder; it may not exist yet."""
    asked = os.environ.get("SKYWARD_STATE_DIR")
    own = (
        Path(asked).expanduser().absolute() if asked else platformdirs.user_state_path("skyward_nb")
    )
    return own / provider


def write(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file all or nothing, and sync it to disk; of several processes that do, the last one's stays, whole."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_NEW}")
    try:
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.rename(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def remove(path: Path) -> None:
    """Remove a file, and what processes that were killed as they wrote it have left of it."""
    path.unlink(missing_ok=True)
    for left in path.parent.glob(f".{path.name}.*{_NEW}"):
        left.unlink(missing_ok=True)
