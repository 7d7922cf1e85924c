"""Orphans of dead pools, their processes and values; and the result of a sweep, `Swept`."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from skyward_nb.system import processes
from skyward_nb.words.errors import spell_size

_ROUNDS = 5
_LEAVING = 1.0
_ABANDONED = 24 * 3600.0


@dataclass(frozen=True)
class Swept:
    """Leftovers of dead pools that a sweep removed; `values` in bytes."""

    folders: int = 0
    values: int = 0
    processes: int = 0

    def __bool__(self) -> bool:
        return self != Swept()

    def __str__(self) -> str:
        parts: list[str] = []
        if self.folders:
            parts.append(f"{_count(self.folders, 'folder')} of pools that are gone")
        if self.values:
            parts.append(f"{spell_size(self.values)} of values")
        if self.processes:
            parts.append(_count(self.processes, "process", "es"))
        return ", ".join(parts) or "nothing is left over"


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}{'' if number == 1 else plural}"


def end_processes(dead: Collection[Path]) -> int:
    """End the processes of pools with a dead agent; returns their number.

    They are known by the list in the pool's folder and by their mark; the next round finds processes that
    they start meanwhile.
    """
    ended: set[processes.ProcessIdentity] = set()
    noted = {each for folder in dead for each in processes.noted(folder)}
    for _ in range(_ROUNDS):
        marked = {each for each, folder in processes.marked().items() if folder in dead}
        found = (noted | marked) - ended
        if not found:
            break
        processes.end(found)
        ended |= found
    return len(ended)


def end_strays(root: Path) -> int:
    """End the processes of a runtime root's pools whose folder is gone; returns their number.

    An agent removes its folder before it ends, and gets time for that.
    """
    stray = [
        each
        for each, folder in processes.marked().items()
        if folder.parent == root and not folder.exists()
    ]
    return processes.end(stray, wait=_LEAVING)


def size_of(folder: Path) -> int:
    """Bytes of the files in a folder."""
    total = 0
    for path in folder.rglob("*"):
        try:
            found = path.lstat()
        except OSError:
            continue
        total += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return total


def is_ours(folder: Path) -> bool:
    """Whether it is a folder that only this user may enter."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    private = stat.S_IMODE(found.st_mode) & 0o077 == 0
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and private


def is_abandoned(folder: Path) -> bool:
    """Whether a pool of another runtime root, whose lock is unknown, left these values.

    They did not change for a day, and no process here mentions them. Agents of other hosts and containers
    cannot be seen; they touch their folder several times a day.
    """
    if not is_ours(folder):
        return False
    try:
        newest = folder.lstat().st_mtime
        for path in folder.iterdir():
            newest = max(newest, path.lstat().st_mtime)
    except OSError:
        return False
    return time.time() - newest > _ABANDONED and not processes.mentioned(str(folder))
