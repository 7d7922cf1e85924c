"""Where the output of runs lies on disk, and which of it goes when there is too much.

    <log root>/<pool id>/7.log      the head of run 7, locked while its process writes to it
    <log root>/<pool id>/7.log.5    a later part of it; those before may be gone
    <log root>/<pool id>/nodes.log  what was said of the pool's machines, kept likewise

A part is a header, which tells how much went before it was begun, and then frames as on the wire.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from skyward_nb.words.errors import OptionError

NODES = -1
"""Stands for a run where it is about a pool's machines."""

_NAME = "nodes"
_PART = re.compile(rf"(\d+|{_NAME})\.log(?:\.(\d+))?")
_HEADER = struct.Struct(">8sQQ")
_MAGIC = b"skylog 1"
_TOLD = 8


class LogLimits(msgspec.Struct, frozen=True):
    """How much is kept, in bytes: of one run its head and the last `parts`, of all so much.

    With these a run takes 256 MB at most, and has its first 64 MB and its last 160 MB.
    """

    head: int = 64_000_000
    part: int = 32_000_000
    parts: int = 6
    block: int = 256_000
    everything: int = 1_000_000_000
    runs: int = 2000


LIMITS = LogLimits()


class DroppedOutput(msgspec.Struct, frozen=True):
    """What of a run is not kept any more."""

    size: int = 0
    lines: int = 0


class StoredRun(msgspec.Struct, frozen=True):
    """A run whose output is on disk: its parts by number, bytes, and when it was last written."""

    pool_id: str
    run: int
    when: float
    size: int
    parts: tuple[int, ...]

    @property
    def name(self) -> str:
        """How a person names it: `default-3fa2b1/7`."""
        return f"{self.pool_id}/{self.run}"


def log_root() -> Path:
    """Where the output of all runs of this user lies: `SKYWARD_LOG_DIR`, or the user's cache.

    A relative path is one to the folder that was current when it was first asked for.
    """
    asked = os.environ.get("SKYWARD_LOG_DIR")
    if asked:
        return _resolve(asked)
    import platformdirs  # a notebook whose cells print nothing never needs it

    return platformdirs.user_cache_path("skyward_nb") / "logs"


@functools.cache
def _resolve(asked: str) -> Path:
    # Once: a cell that changes the current folder moves no logs.
    return Path(asked).expanduser().absolute()


def part_path(pool_id: str, run: int, part: int) -> Path:
    """The file of a part; part 0 is the head."""
    name = _NAME if run == NODES else str(run)
    return log_root() / pool_id / (f"{name}.log.{part}" if part else f"{name}.log")


def parts_of(pool_id: str, run: int) -> list[Path]:
    """The files there are of a run."""
    folder = log_root() / pool_id
    return [folder / f"{run}.log", *folder.glob(f"{run}.log.*")]


def header(dropped: DroppedOutput) -> bytes:
    """What a part begins with."""
    return _HEADER.pack(_MAGIC, dropped.size, dropped.lines)


HEADER_SIZE = _HEADER.size


def read_header(data: bytes) -> DroppedOutput | None:
    """What was dropped when the part was begun; None when this is no part of ours."""
    if len(data) != _HEADER.size:
        return None
    magic, size, lines = _HEADER.unpack(data)
    return DroppedOutput(size, lines) if magic == _MAGIC else None


def lock(descriptor: int, *, alone: bool) -> bool:
    """Take a file's lock, alone or with others; whether nobody is in the way.

    Where the file system has no locks, nobody is. Source: flock(2).
    """
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def goes_on(head: int) -> bool:
    """Whether a process is still writing the run with this head."""
    if not lock(head, alone=True):
        return True
    with contextlib.suppress(OSError):
        fcntl.flock(head, fcntl.LOCK_UN)
    return False


# ── what is there ───────────────────────────────────────────────────────────────────────


def runs() -> list[StoredRun]:
    """The runs whose output is on disk, newest first."""
    return [kept for kept in _there() if kept.run != NODES]


def pools() -> list[StoredRun]:
    """The pools of whose machines something is on disk, newest first."""
    return [kept for kept in _there() if kept.run == NODES]


def _there() -> list[StoredRun]:
    found = [kept for folder in _folders() for kept in _runs_of(folder)]
    return sorted(found, key=lambda kept: (kept.when, kept.run), reverse=True)


def kept(pool_id: str, run: int) -> StoredRun | None:
    """What is on disk of one run."""
    return next((kept for kept in _runs_of(log_root() / pool_id) if kept.run == run), None)


def _folders() -> list[Path]:
    try:
        with os.scandir(log_root()) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (OSError, RuntimeError):  # RuntimeError: below a home that nobody has
        return []


def _runs_of(folder: Path) -> Iterator[StoredRun]:
    parts: dict[int, list[tuple[int, float, int]]] = {}
    # What cannot be looked at, or is just being removed, is not there.
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if name := _PART.fullmatch(entry.name):
                with contextlib.suppress(FileNotFoundError):
                    info = entry.stat(follow_symlinks=False)
                    about = (int(name[2] or 0), info.st_mtime, info.st_size)
                    run = NODES if name[1] == _NAME else int(name[1])
                    parts.setdefault(run, []).append(about)
    for run, found in parts.items():
        numbers, times, sizes = zip(*sorted(found), strict=True)
        yield StoredRun(folder.name, run, max(times), sum(sizes), numbers)


def find(run: str, pool_ids: Sequence[str] = ()) -> StoredRun:
    """The run that a person means: `7`, the newest such of these pools, or `default-3fa2b1/7`.

    No words at all mean the newest run of these pools. Raises `OptionError` saying what there is.
    """
    there = runs()
    pool_id, slash, number = run.strip().rpartition("/")
    among = (pool_id,) if slash else tuple(pool_ids)
    for kept in there:
        if kept.pool_id in among and (not run.strip() or str(kept.run) == number):
            return kept
    if number and not number.isdecimal():
        problem = (
            f"run={run}: write a number such as 7, or pool and number such as default-3fa2b1/7"
        )
    elif number:
        problem = f"run={run}: its output is not on disk"
    else:
        problem = "the output of these pools is not on disk"
    raise OptionError("run", f"{problem}; {_spell(there, among)}")


def _spell(there: Sequence[StoredRun], first: Sequence[str]) -> str:
    """Some of the runs there are, those of some pools before others."""
    if not there:
        return "there is no output of any run"
    ordered = sorted(there, key=lambda kept: kept.pool_id not in first)
    more = f" and {len(there) - _TOLD} more" if len(there) > _TOLD else ""
    return f"there is {', '.join(kept.name for kept in ordered[:_TOLD])}{more}"


# ── what goes ───────────────────────────────────────────────────────────────────────────


def sweep(most: int, most_runs: int) -> None:
    """Remove the runs written longest ago until so many bytes and runs are left.

    A run that a process is still writing stays. What cannot be removed stays, too.
    """
    there = _there()
    size, count = sum(kept.size for kept in there), len(there)
    touched: set[str] = set()
    for kept in reversed(there):
        if size <= most and count <= most_runs:
            break
        if _remove(kept):
            size -= kept.size
            count -= 1
            touched.add(kept.pool_id)
    for pool_id in touched:
        # A folder that is not empty stays; one whose process needs it again is made again.
        with contextlib.suppress(OSError):
            (log_root() / pool_id).rmdir()


def _remove(kept: StoredRun) -> bool:
    """Remove a run's files unless it goes on; whether they are gone."""
    paths = [part_path(kept.pool_id, kept.run, part) for part in kept.parts]
    try:
        if kept.parts[0]:
            # Its head is gone already, and with it the lock.
            return _unlink(paths)
        head = os.open(paths[0], os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return lock(head, alone=True) and _unlink(paths)
    finally:
        os.close(head)


def _unlink(paths: Sequence[Path]) -> bool:
    try:
        for path in reversed(paths):
            path.unlink(missing_ok=True)
    except OSError:
        return False
    return True
