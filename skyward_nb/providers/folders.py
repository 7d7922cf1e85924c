"""Folders of pools on this machine: where the agent's socket, its log and its values lie.

A pool's folder is locked by its agent; one whose lock is free belongs to nobody and is swept.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from skyward_nb.words.errors import RuntimeFolderError

_SOCKET_LIMIT = 100


@dataclass(frozen=True)
class PoolFolders:
    """`runtime` holds socket, lock and log; `store` holds values, on tmpfs where there is one."""

    runtime: Path
    store: Path


def runtime_root() -> Path:
    """Where all pools of this user have their folders: `SKYWARD_RUNTIME_DIR`, or the system's."""
    asked = os.environ.get("SKYWARD_RUNTIME_DIR")
    if asked:
        return Path(asked).expanduser().absolute()
    system = os.environ.get("XDG_RUNTIME_DIR")
    if system:
        return Path(system) / "skyward_nb"
    return Path(tempfile.gettempdir()) / f"skyward_nb-{os.getuid()}"


def store_root() -> Path:
    """Where values lie: memory-backed if the machine has such a place."""
    shared = Path("/dev/shm")  # noqa: S108 - the point is that it is memory; folders in it are 0700
    base = shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())
    return base / f"skyward_nb-{os.getuid()}"


def make_folders(pool: str, pool_id: str) -> PoolFolders:
    """Make the folders of a new pool, after sweeping those of dead ones.

    Raises `RuntimeFolderError` naming the folder that cannot be used.
    """
    roots = runtime_root(), store_root()
    made: list[Path] = []
    for root in roots:
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if root.stat().st_uid != os.getuid():
                raise RuntimeFolderError(pool, str(root), "it belongs to another user")
            folder = root / pool_id
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise RuntimeFolderError(pool, str(root), error.strerror or str(error)) from error
        made.append(folder)
    if len(os.fsencode(made[0] / "agent.sock")) > _SOCKET_LIMIT:
        for folder in made:
            folder.rmdir()
        raise RuntimeFolderError(pool, str(roots[0]), "its path is too long for a socket in it")
    return PoolFolders(*made)


def sweep() -> list[str]:
    """Remove folders whose agent is gone; returns the ids of the pools they belonged to."""
    swept: set[str] = set()
    root = runtime_root()
    for folder in root.glob("*/") if root.is_dir() else ():
        lock = folder / "lock"
        if lock.exists() and _is_free(lock):
            shutil.rmtree(folder, ignore_errors=True)
            swept.add(folder.name)
    stores = store_root()
    for folder in stores.glob("*/") if stores.is_dir() else ():
        if folder.name in swept:
            shutil.rmtree(folder, ignore_errors=True)
    return sorted(swept)


def _is_free(lock: Path) -> bool:
    try:
        with lock.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return False
    return True
