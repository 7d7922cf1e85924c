"""How the ranks of a machine are doing: `Sampler`, and what it has to know of a rank, `RankProcess`.

It looks when it is asked and at no other time. A rank is its process and all that descends from
it: data loader workers count. Ranks lead sessions of their own, so one glance at the session of
every process of the machine tells whose it is, and only those of ranks are looked at closely.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import msgspec

from skyward_nb.node.gpus import Gpus
from skyward_nb.protocol.events import Telemetry

if TYPE_CHECKING:
    import psutil

_FORGOTTEN = 5.0
_SOONEST = 0.1
_STALE = 60.0


class RankProcess(msgspec.Struct, frozen=True):
    """A rank, the process that leads its session, and its GPU as CUDA_VISIBLE_DEVICES names it."""

    rank: int
    pid: int
    gpu: str | None = None


class CpuTime(msgspec.Struct, frozen=True):
    """Seconds of CPU of a process, and those of its children that ended and were waited for."""

    own: float
    reaped: float = 0.0


class _Record(msgspec.Struct):
    """What is remembered of a rank: when it was looked at, and what its processes had spent."""

    at: float
    spent: dict[int, CpuTime]
    owed: float = 0.0
    cpu: float | None = None


class _Glance(msgspec.Struct):
    """A rank's processes right now."""

    spent: dict[int, CpuTime] = {}
    rss: int = 0


class Sampler:
    """Says how ranks are doing, and remembers what it needs to say it the next time.

    One call at a time; it may take milliseconds, so not on a loop's thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._gpus = Gpus()
        self._records: dict[int, _Record] = {}
        self._processes: dict[int, psutil.Process] = {}
        self._owners: dict[int, int | None] = {}
        """Whose a session is: the process id of a rank, None when it is nobody's."""
        self._known: set[int] = set()
        self._known_at = clock()

    def close(self) -> None:
        """Let go of the GPUs' driver."""
        self._gpus.close()

    def sample(self, subjects: Collection[RankProcess]) -> list[Telemetry]:
        """`Telemetry` of each rank that lives; one that has ended is left out.

        The CPU is that since the last sample of a rank's process, None when that is none or
        more than 5 s old. What is asked for again at once gets the same CPU again.
        """
        families = self._families({subject.pid for subject in subjects})
        gpus = self._gpus.look(subject.gpu for subject in subjects if subject.gpu is not None)
        found: list[Telemetry] = []
        records: dict[int, _Record] = {}
        for subject in subjects:
            glance = self._look(families[subject.pid])
            if subject.pid not in glance.spent:
                continue
            record = self._follow(self._records.get(subject.pid), glance.spent)
            records[subject.pid] = record
            gpu = gpus.get(subject.gpu) if subject.gpu is not None else None
            found.append(Telemetry(subject.rank, record.cpu, glance.rss, gpu))
        self._records = records
        seen = {pid for family in families.values() for pid in family}
        self._processes = {pid: one for pid, one in self._processes.items() if pid in seen}
        return found

    def _follow(self, last: _Record | None, spent: dict[int, CpuTime]) -> _Record:
        now = self._clock()
        if last is None or now - last.at > _FORGOTTEN:
            return _Record(now, spent)
        if now - last.at < _SOONEST:
            return last  # the kernel counts in hundredths of a second
        seconds, owed = spent_since(last.spent, spent, last.owed)
        return _Record(now, spent, owed, 100 * seconds / (now - last.at))

    # ── whose a process is ──────────────────────────────────────────────────────────────

    def _families(self, ranks: set[int]) -> dict[int, list[int]]:
        """The process ids of each rank, its own first."""
        import psutil

        now = self._clock()
        if ranks != self._known or now - self._known_at > _STALE:
            self._known = ranks
            self._owners = {0: None} | {pid: pid for pid in ranks}
        self._known_at = now
        families = {pid: [pid] for pid in ranks}
        sessions = {0, *ranks}
        for pid in psutil.pids():
            if pid in ranks:
                continue
            try:
                session = os.getsid(pid)
                owner = self._owner(session, pid)
            except (OSError, psutil.Error):
                continue
            sessions.add(session)
            if owner is not None:
                families[owner].append(pid)
        # A session's number may be another's once it has ended, or when nobody looked for long.
        self._owners = {each: who for each, who in self._owners.items() if each in sessions}
        return families

    def _owner(self, session: int, pid: int) -> int | None:
        """Whose a process and its session are: its parent's, unless the session is known."""
        import psutil

        climbed: set[int] = set()
        while session not in self._owners and pid > 1:
            climbed.add(session)
            pid = psutil.Process(pid).ppid()
            session = os.getsid(pid) if pid else 0
        owner = self._owners.get(session)
        self._owners |= dict.fromkeys(climbed, owner)
        return owner

    # ── what it does ────────────────────────────────────────────────────────────────────

    def _look(self, family: list[int]) -> _Glance:
        """What a rank's processes have spent and hold, parents mostly before their children.

        Of a descendant, what is only its own counts where that is cheap to know: libraries,
        files and shared memory are its rank's already. Pages that a forked child still shares
        with its parent count for both: to tell them apart takes milliseconds a process.
        """
        import psutil

        glance = _Glance()
        for pid in family:
            try:
                process = self._processes.get(pid) or psutil.Process(pid)
                times, memory = process.cpu_times(), process.memory_info()
            except psutil.Error:
                continue
            self._processes[pid] = process
            glance.spent[pid] = CpuTime(
                times.user + times.system, times.children_user + times.children_system
            )
            glance.rss += memory.rss - (memory.shared if pid != family[0] else 0)
        return glance


def spent_since(
    before: dict[int, CpuTime], now: dict[int, CpuTime], owed: float = 0.0
) -> tuple[float, float]:
    """Seconds of CPU that processes spent between two looks at them, and what is owed.

    A process that ended is found with its parent, with all it ever spent; what it had spent
    before was counted before. That is owed until the parent has waited for it, which may be
    seen one look later than that it is gone, and never where nobody waits for it.
    """
    none = CpuTime(0.0)
    own = sum(max(0.0, each.own - before.get(pid, none).own) for pid, each in now.items())
    reaped = sum(max(0.0, each.reaped - before.get(pid, none).reaped) for pid, each in now.items())
    ended = sum(each.own + each.reaped for pid, each in before.items() if pid not in now)
    return own + max(0.0, reaped - owed - ended), max(0.0, ended - max(0.0, reaped - owed))
