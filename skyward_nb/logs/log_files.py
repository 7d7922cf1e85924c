"""The files of the output of runs on disk, and which of them are removed when there are too many.

    <log root>/<pool id>/7.log      the head of run 7, locked while its process writes to it
    <log root>/<pool id>/7.log.5    a later part of it; earlier ones may be gone
    <log root>/<pool id>/nodes.log  the words of the pool's machines, in the same form

A part is a header, with the amount of output that was dropped before, and frames as on the wire.
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
"""The run number that stands for the words of a pool's machines."""

RUN_FORM = "write a number such as 7, or pool and number such as default-3fa2b1/7"

_NAME = "nodes"
_PART = re.compile(rf"(\d+|{_NAME})\.log(?:\.(\d+))?")
_HEADER = struct.Struct(">8sQQ")
_MAGIC = b"skylog 1"
_TOLD = 8


class LogLimits(msgspec.Struct, frozen=True):
    """Limits in bytes: of one run, its head and the last `parts` are kept; of all runs, `everything`.

    With the defaults a run takes 256 MB at most, and has its first 64 MB and its last 160 MB.
    """

    head: int = 64_000_000
    part: int = 32_000_000
    parts: int = 6
    block: int = 256_000
    everything: int = 1_000_000_000
    runs: int = 2000


LIMITS = LogLimits()


class DroppedOutput(msgspec.Struct, frozen=True):
    """The amount of a run's output that is not kept any more."""

    size: int = 0
    lines: int = 0


class StoredRun(msgspec.Struct, frozen=True):
    """A run on disk: the numbers of its parts, its bytes, and the time of its last write."""

    pool_id: str
    run: int
    when: float
    size: int
    parts: tuple[int, ...]

    @property
    def name(self) -> str:
        """Its name for a person: `default-3fa2b1/7`."""
        return f"{self.pool_id}/{self.run}"


def log_root() -> Path:
    """The folder of all runs of this user: `SKYWARD_LOG_DIR`, or in the user's cache.

    A relative path starts at the folder that was current at the first call.
    """
    asked = os.environ.get("SKYWARD_LOG_DIR")
    if asked:
        return _resolve(asked)
    import platformdirs  # a notebook whose cells print nothing never needs it

    return platformdirs.user_cache_path("skyward_nb") / "logs"


@functools.cache
def _resolve(asked: str) -> Path:
    # Cached: a cell that changes the current folder moves no logs.
    return Path(asked).expanduser().absolute()


def part_path(pool_id: str, run: int, part: int) -> Path:
    """The file of a part; part 0 is the head."""
    name = _NAME if run == NODES else str(run)
    return log_root() / pool_id / (f"{name}.log.{part}" if part else f"{name}.log")


def parts_of(pool_id: str, run: int) -> list[Path]:
    """The files of a run."""
    folder = log_root() / pool_id
    return [folder / f"{run}.log", *folder.glob(f"{run}.log.*")]


def header(dropped: DroppedOutput) -> bytes:
    """The header of a part."""
    return _HEADER.pack(_MAGIC, dropped.size, dropped.lines)


HEADER_SIZE = _HEADER.size


def read_header(data: bytes) -> DroppedOutput | None:
    """The output that was dropped before this part was begun; None if the header is damaged."""
    if len(data) != _HEADER.size:
        return None
    magic, size, lines = _HEADER.unpack(data)
    return DroppedOutput(size, lines) if magic == _MAGIC else None


def lock(descriptor: int, *, alone: bool) -> bool:
    """Take a file's lock, alone or shared; False if another process prevents that.

    True on file systems without locks. Source: flock(2).
    """
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def goes_on(head: int) -> bool:
    """Whether a process still writes the run with this head."""
    if not lock(head, alone=True):
        return True
    with contextlib.suppress(OSError):
        fcntl.flock(head, fcntl.LOCK_UN)
    return False


# ── runs on disk ────────────────────────────────────────────────────────────────────────


def runs() -> list[StoredRun]:
    """The runs whose output is on disk, newest first."""
    return [kept for kept in _there() if kept.run != NODES]


def pools() -> list[StoredRun]:
    """The pools with words of their machines on disk, newest first."""
    return [kept for kept in _there() if kept.run == NODES]


def _there() -> list[StoredRun]:
    found = [kept for folder in _folders() for kept in _runs_of(folder)]
    return sorted(found, key=lambda kept: (kept.when, kept.run), reverse=True)


def kept(pool_id: str, run: int) -> StoredRun | None:
    """One run, if it is on disk."""
    return next((kept for kept in _runs_of(log_root() / pool_id) if kept.run == run), None)


def _folders() -> list[Path]:
    try:
        with os.scandir(log_root()) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (OSError, RuntimeError):  # RuntimeError: below a home that nobody has
        return []


def _runs_of(folder: Path) -> Iterator[StoredRun]:
    parts: dict[int, list[tuple[int, float, int]]] = {}
    # Files that cannot be examined, or are being removed, are left out.
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
    """The run that a person names: `7`, the newest such of these pools, or `default-3fa2b1/7`.

    An empty name means the newest run of these pools. Raises `OptionError` with a list of runs.
    """
    there = runs()
    pool_id, slash, number = run.strip().rpartition("/")
    among = (pool_id,) if slash else tuple(pool_ids)
    for kept in there:
        if kept.pool_id in among and (not run.strip() or str(kept.run) == number):
            return kept
    if number and not number.isdecimal():
        problem = f"run={run}: {RUN_FORM}"
    elif number:
        problem = f"run={run}: its output is not on disk"
    else:
        problem = "the output of these pools is not on disk"
    raise OptionError("run", f"{problem}; {_spell(there, among)}")


def _spell(there: Sequence[StoredRun], first: Sequence[str]) -> str:
    """A few of the runs, those of the `first` pools before others."""
    if not there:
        return "there is no output of any run"
    ordered = sorted(there, key=lambda kept: kept.pool_id not in first)
    more = f" and {len(there) - _TOLD} more" if len(there) > _TOLD else ""
    return f"there is {', '.join(kept.name for kept in ordered[:_TOLD])}{more}"


# ── removal ─────────────────────────────────────────────────────────────────────────────


def sweep(most: int, most_runs: int) -> None:
    """Remove the runs written longest ago until at most so many bytes and runs are left.

    A run that a process still writes stays, and so does one that cannot be removed.
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
        # A folder that is not empty stays; a process that needs its folder makes it again.
        with contextlib.suppress(OSError):
            (log_root() / pool_id).rmdir()


def _remove(kept: StoredRun) -> bool:
    """Remove a run's files unless it goes on; whether they are gone."""
    paths = [part_path(kept.pool_id, kept.run, part) for part in kept.parts]
    try:
        if kept.parts[0]:
            # Its head is gone, and with it the lock.
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
