"""Folders of pools on this machine: where the agent's socket, its log and its values lie.

A pool's folder is locked by its agent; one whose lock is free belongs to nobody and is swept.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from skyward_nb.providers.orphans import (
    Swept,
    end_processes,
    end_strays,
    is_abandoned,
    is_ours,
    size_of,
)
from skyward_nb.system import mig_partition, processes
from skyward_nb.words.errors import RuntimeFolderError

_SOCKET_LIMIT = 100
_NEVER_STARTED = 120.0


@dataclass(frozen=True)
class PoolFolders:
    """`runtime` holds socket, lock and log; `store` holds values, on tmpfs where there is one.

    `spill` holds values that found no room there; it is made when the first one comes.
    """

    runtime: Path
    store: Path
    spill: Path


def runtime_root() -> Path:
    """Where all pools of this user have their folders: `SKYWARD_RUNTIME_DIR`, or the system's."""
    asked = os.environ.get("SKYWARD_RUNTIME_DIR")
    if asked:
        return Path(asked).expanduser().absolute()
    system = os.environ.get("XDG_RUNTIME_DIR")
    if system:
        return Path(system) / "skyward_nb"
    return Path(tempfile.gettempdir()) / f"skyward_nb-{os.getuid()}"


def far_root() -> Path:
    """Where pools are listed whose folders are elsewhere: they outlive this machine's own going down."""
    asked = os.environ.get("SKYWARD_RUNTIME_DIR")
    return Path(asked) if asked else platformdirs.user_state_path("skyward_nb") / "pools"


def store_root() -> Path:
    """Where values lie: `SKYWARD_STORE_DIR`, or what is backed by memory if there is such a place."""
    shared = Path("/dev/shm")  # noqa: S108 - the point is that it is memory; folders in it are 0700
    base = shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())
    base = Path(os.environ.get("SKYWARD_STORE_DIR") or base)
    return base / f"skyward_nb-{os.getuid()}-{_apart()}"


def spill_root() -> Path:
    """Where values lie that find no room in memory: `SKYWARD_SPILL_DIR`, or the user's cache."""
    base = os.environ.get("SKYWARD_SPILL_DIR") or platformdirs.user_cache_dir("skyward_nb")
    return Path(base) / f"values-{_apart()}"


def _apart() -> str:
    """What keeps the values of one runtime root apart from those of others.

    Hosts may share a home, and containers the memory of their machine: a root of the same path is
    another one there, which its device and number tell, and whose machine's boot it is.
    """
    root = runtime_root()
    said = [os.fsdecode(root), processes.boot()]
    with contextlib.suppress(OSError):
        found = root.stat()
        said += [str(found.st_dev), str(found.st_ino)]
    return hashlib.sha256(os.fsencode("\0".join(said))).hexdigest()[:8]


def pool_folders(pool_id: str) -> PoolFolders:
    """The names of a pool's folders."""
    return PoolFolders(*(root() / pool_id for root in (runtime_root, store_root, spill_root)))


def make_folders(pool: str, pool_id: str) -> PoolFolders:
    """Make the folders of a new pool, both or none.

    Raises `RuntimeFolderError` naming the folder that cannot be used.
    """
    runtime = runtime_root() / pool_id
    if len(os.fsencode(runtime / "agent.sock")) > _SOCKET_LIMIT:
        root = str(runtime.parent)
        raise RuntimeFolderError(pool, root, "its path is too long for a socket in it")
    _make_new(pool, runtime)
    # What the others are called depends on the root, which is there now.
    folders = pool_folders(pool_id)
    try:
        _make_new(pool, folders.store)
    except RuntimeFolderError:
        runtime.rmdir()
        raise
    return folders


def _make_new(pool: str, folder: Path) -> None:
    """Make a folder of a new pool; raises `RuntimeFolderError`, with nothing left of it."""
    try:
        _make(pool, folder)
    except FileExistsError:
        raise RuntimeFolderError(pool, str(folder), "another pool has it") from None
    except OSError as error:
        root = str(folder.parent)
        raise RuntimeFolderError(pool, root, error.strerror or str(error)) from error


def _make(pool: str, folder: Path) -> None:
    root = folder.parent
    for last in (False, False, True):
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileExistsError:
            raise RuntimeFolderError(pool, str(root), "it is not a folder") from None
        if not is_ours(root):
            raise RuntimeFolderError(pool, str(root), _why_not_ours(root))
        try:
            folder.mkdir(mode=0o700)
        except FileNotFoundError:
            # Another pool's end took the empty root away in between.
            if last:
                raise
        else:
            return


def _why_not_ours(root: Path) -> str:
    found = root.lstat()
    if stat.S_ISLNK(found.st_mode):
        return "it is a symbolic link"
    if found.st_uid != os.getuid():
        return "it belongs to another user"
    return f"others may enter it, and `chmod 700 {shlex.quote(str(root))}` keeps them out"


def remove_folders(folders: PoolFolders) -> str:
    """Remove what is left of a pool's folders, and the roots of values if they are empty now.

    What it has cut of GPUs is put together first; what could not be is said, and tried again by a sweep.
    """
    left = mig_partition.undo(folders.runtime)
    for folder in (folders.spill, folders.store, *(() if left else (folders.runtime,))):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in (folders.spill, folders.store):
        with contextlib.suppress(OSError):
            folder.parent.rmdir()
    return left


def sweep(*, thoroughly: bool = False) -> Swept:
    """Remove folders whose agent is gone, values that belong to no pool, and what dead pools started.

    Processes are looked for where a dead folder was found, or when asked to look `thoroughly`.
    Values of other runtime roots go, too, those of before a boot among them, if nobody has touched
    them for a day.
    """
    runtimes = runtime_root()
    dead = [folder for folder in _folders(runtimes) if is_dead(folder)]
    ended = 0
    if dead or thoroughly:
        ended = end_processes(dead) + end_strays(runtimes)
    for folder in dead:
        if not mig_partition.undo(folder):
            shutil.rmtree(folder, ignore_errors=True)
    values = [
        folder
        for folder in [*_folders(store_root()), *_folders(spill_root())]
        # A pool's runtime folder is made before its store, and removed after it.
        if not (runtimes / folder.name).exists()
    ]
    values += _abandoned()
    size = 0
    for folder in values:
        size += size_of(folder)
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            folder.parent.rmdir()
    return Swept(len({folder.name for folder in [*dead, *values]}), size, ended)


def end_pool(folders: PoolFolders) -> int:
    """End what the pool of a dead agent started; how many processes there were."""
    return end_processes([folders.runtime])


def _abandoned() -> list[Path]:
    """Folders of values of other runtime roots, and of versions that had one for all of them."""
    stores = re.compile(rf"skyward_nb-{os.getuid()}(-[0-9a-f]{{8}})?")
    spills = re.compile(r"values-[0-9a-f]{8}")
    found: list[Path] = []
    for own, name in ((store_root(), stores), (spill_root(), spills)):
        for root in _folders(own.parent):
            if root not in (own, runtime_root()) and name.fullmatch(root.name) and is_ours(root):
                found += [folder for folder in _folders(root) if is_abandoned(folder)]
    return found


def _folders(root: Path) -> list[Path]:
    """The folders of this user in a folder; none where it cannot be looked into."""
    found: list[Path] = []
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                own = entry.stat(follow_symlinks=False).st_uid == os.getuid()
                if own and entry.is_dir(follow_symlinks=False):
                    found.append(Path(entry.path))
    return found


def end_agent(folder: Path) -> None:
    """Kill the agent that holds this folder's lock, if it still does: it says its pid there."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((folder / "lock").read_text())
        if not is_gone(folder):
            processes.end(each for each in processes.noted(folder) if each.pid == pid)


def is_gone(folder: Path) -> bool:
    """Whether a pool's folder is not there any more, or belongs to nobody."""
    return not folder.exists() or is_dead(folder)


def is_dead(folder: Path) -> bool:
    """Whether no agent holds the folder's lock, nor will soon."""
    try:
        with (folder / "lock").open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        # Its agent has not come so far; after a while it never will. Or the file was tidied away.
        try:
            old = time.time() - folder.stat().st_mtime > _NEVER_STARTED
        except FileNotFoundError:
            return False
        return old and not _is_locked(folder)
    except OSError:
        return False
    return True


def _is_locked(folder: Path) -> bool:
    """Whether somebody holds the lock on a folder itself."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False
