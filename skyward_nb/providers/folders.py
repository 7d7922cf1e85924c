"""The folders of pools on this machine, for sockets, logs and values.

A pool's agent locks its folder; a folder with a free lock is swept.
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
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import IO

import platformdirs

from skyward_nb.providers.orphans import (
    Swept,
    end_processes,
    end_strays,
    is_abandoned,
    is_ours,
    size_of,
)
from skyward_nb.system import processes, slices_note
from skyward_nb.words import scratch
from skyward_nb.words.errors import RuntimeFolderError

_SOCKET_LIMIT = 100
_NEVER_STARTED = 120.0


@dataclass(frozen=True)
class PoolFolders:
    """`runtime` holds sockets, lock and log; `store` holds values, on tmpfs if there is one.

    `spill` holds values that had no room there; it is made for the first one. Who makes them holds their
    `lock` until their agent does: where either is killed, the folder is known to be dead.
    """

    runtime: Path
    store: Path
    spill: Path
    lock: IO[str] | None = field(default=None, compare=False, repr=False)

    def let_go(self) -> None:
        """Close the lock here: an agent has it, or none will."""
        if self.lock is not None:
            _held.discard(self.lock)
            self.lock.close()


_held: set[IO[str]] = set()
"""Locks of folders that are made here, and have no agent yet."""


def _let_go_in_fork() -> None:
    """Else a process that a notebook forks meanwhile holds them for as long as it lives."""
    for lock in _held:
        lock.close()
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_fork)


_path = lru_cache(maxsize=8)(Path)
"""Paths of folders that a panel asks for each second, several times."""


def runtime_root() -> Path:
    """The folder of all pools of this user: `SKYWARD_RUNTIME_DIR`, or one of the system's."""
    asked = os.environ.get("SKYWARD_RUNTIME_DIR")
    if asked:
        return _path(asked) if asked.startswith("/") else Path(asked).expanduser().absolute()
    system = os.environ.get("XDG_RUNTIME_DIR")
    if system:
        return Path(system) / "skyward_nb"
    return Path(tempfile.gettempdir()) / f"skyward_nb-{os.getuid()}"


def far_root() -> Path:
    """The folder that lists pools on other machines; it survives a restart of this one."""
    asked = os.environ.get("SKYWARD_RUNTIME_DIR")
    return _path(asked) if asked else platformdirs.user_state_path("skyward_nb") / "pools"


def store_root() -> Path:
    """The folder of values: in `SKYWARD_STORE_DIR`, or in memory if possible."""
    shared = Path("/dev/shm")  # noqa: S108 - the point is that it is memory; folders in it are 0700
    base = shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())
    base = Path(os.environ.get("SKYWARD_STORE_DIR") or base)
    return base / f"skyward_nb-{os.getuid()}-{_apart()}"


def spill_root() -> Path:
    """The folder of values without room in memory: in `SKYWARD_SPILL_DIR`, a rented machine's own disk, or the user's cache."""
    asked = os.environ.get("SKYWARD_SPILL_DIR")
    base = asked or _own_disk() or platformdirs.user_cache_dir("skyward_nb")
    return Path(base) / f"values-{_apart()}"


def _own_disk() -> Path | None:
    """The folder of a rented machine's own disk, where it has one for this user."""
    with contextlib.suppress(OSError):
        if scratch.FOLDER.stat().st_uid == os.getuid() and scratch.FOLDER.is_mount():
            return scratch.FOLDER
    return None


def _apart() -> str:
    """A mark that keeps the values of this runtime root apart from those of others.

    Hosts may share a home, and containers their machine's memory. Roots of one path differ by device, inode
    and the machine's boot.
    """
    root = runtime_root()
    said = [os.fsdecode(root), processes.boot()]
    with contextlib.suppress(OSError):
        found = root.stat()
        said += [str(found.st_dev), str(found.st_ino)]
    return hashlib.sha256(os.fsencode("\0".join(said))).hexdigest()[:8]


def pool_folders(pool_id: str) -> PoolFolders:
    """The paths of a pool's folders."""
    return PoolFolders(runtime_root() / pool_id, store_root() / pool_id, spill_root() / pool_id)


def make_folders(pool: str, pool_id: str) -> PoolFolders:
    """Make the folders of a new pool, both or none, and lock them.

    Raises `RuntimeFolderError` naming the folder that cannot be used.
    """
    runtime = runtime_root() / pool_id
    if len(os.fsencode(runtime / "agent.sock")) > _SOCKET_LIMIT:
        root = str(runtime.parent)
        raise RuntimeFolderError(pool, root, "its path is too long for a socket in it")
    _make_new(pool, runtime)
    # The paths of the others depend on the root, which exists now.
    folders = pool_folders(pool_id)
    try:
        folders = replace(folders, lock=_locked(pool, runtime))
        _make_new(pool, folders.store)
    except RuntimeFolderError:
        folders.let_go()
        shutil.rmtree(runtime, ignore_errors=True)
        raise
    return folders


def _locked(pool: str, folder: Path) -> IO[str]:
    """A new lock file, locked before it has its name: nobody can find it free."""
    new = folder / "lock.new"
    try:
        lock = new.open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        new.rename(folder / "lock")
    except OSError as error:
        raise RuntimeFolderError(pool, str(folder), error.strerror or str(error)) from error
    _held.add(lock)
    return lock


def _make_new(pool: str, folder: Path) -> None:
    """Make a folder of a new pool; raises `RuntimeFolderError`, and leaves nothing then."""
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
        try:
            if not is_ours(root):
                raise RuntimeFolderError(pool, str(root), _why_not_ours(root))
            folder.mkdir(mode=0o700)
        except FileNotFoundError:
            # The end of another pool removed the empty root meanwhile.
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
    """Remove a pool's folders, and the roots of values if they are empty now.

    Its slices of GPUs are removed first; returns a message if that fails, and a sweep tries again.
    """
    folders.let_go()
    left = slices_note.restore(folders.runtime)
    for folder in (folders.spill, folders.store, *(() if left else (folders.runtime,))):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in (folders.spill, folders.store):
        with contextlib.suppress(OSError):
            folder.parent.rmdir()
    return left


def sweep(*, thoroughly: bool = False) -> Swept:
    """Remove folders of dead agents and values without a pool, and end processes of dead pools.

    Processes are searched after a dead folder was found, or `thoroughly`. Values of other runtime roots, and
    from before a boot, are removed if they did not change for a day.
    """
    runtimes = runtime_root()
    dead = [folder for folder in _folders(runtimes) if is_dead(folder)]
    ended = 0
    if dead or thoroughly:
        ended = end_processes(dead) + end_strays(runtimes)
    for folder in dead:
        if not slices_note.restore(folder):
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


def _abandoned() -> list[Path]:
    """Folders of values of other runtime roots, and of older versions with one for all roots."""
    stores = re.compile(rf"skyward_nb-{os.getuid()}(-[0-9a-f]{{8}})?")
    spills = re.compile(r"values-[0-9a-f]{8}")
    found: list[Path] = []
    for own, name in ((store_root(), stores), (spill_root(), spills)):
        for root in _folders(own.parent):
            if root not in (own, runtime_root()) and name.fullmatch(root.name) and is_ours(root):
                found += [folder for folder in _folders(root) if is_abandoned(folder)]
    return found


def _folders(root: Path) -> list[Path]:
    """The folders of this user in a folder; none if it cannot be read."""
    found: list[Path] = []
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                own = entry.stat(follow_symlinks=False).st_uid == os.getuid()
                if own and entry.is_dir(follow_symlinks=False):
                    found.append(Path(entry.path))
    return found


def end_agent(folder: Path) -> None:
    """Kill the agent that holds this folder's lock, whose file has its pid."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((folder / "lock").read_text())
        if not is_gone(folder):
            processes.end(each for each in processes.noted(folder) if each.pid == pid)


def is_gone(folder: Path) -> bool:
    """Whether a pool's folder is gone, or its agent dead."""
    return not folder.exists() or is_dead(folder)


def is_dead(folder: Path) -> bool:
    """Whether no agent holds the folder's lock, or will soon."""
    try:
        lock = os.open(folder / "lock", os.O_RDWR)
    except FileNotFoundError:
        # It was made this moment, or its maker was killed before it had a lock; or a cleaner removed the file.
        try:
            old = time.time() - folder.stat().st_mtime > _NEVER_STARTED
        except FileNotFoundError:
            return False
        return old and not _is_locked(folder)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def _is_locked(folder: Path) -> bool:
    """Whether a process holds the lock on the folder itself."""
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
