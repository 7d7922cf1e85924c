"""CPU, memory and GPU use of the ranks of a machine.

A sample is taken on request only. A rank is its process and all descendants: data loader workers count.
Each rank leads a session, so the session of a process tells its rank; only processes of ranks are
examined closely.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

import msgspec

from skyward_nb.node.gpus import Gpus
from skyward_nb.protocol.events import Telemetry

if TYPE_CHECKING:
    import psutil  # else by who samples: most agents have ended before

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
    """The last sample of a rank: its time, and the CPU that its processes had used."""

    at: float
    spent: dict[int, CpuTime]
    owed: float = 0.0
    cpu: float | None = None


class _Glance(msgspec.Struct):
    """The present CPU use and memory of a rank's processes."""

    spent: dict[int, CpuTime] = {}
    rss: int = 0


class Sampler:
    """Samples ranks, and remembers what the next sample needs.

    One call at a time; it may take milliseconds, so not on a loop's thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._gpus = Gpus()
        self._records: dict[int, _Record] = {}
        self._processes: dict[int, psutil.Process] = {}
        self._owners: dict[int, int | None] = {}
        """By session, the process id of its rank; None if it belongs to no rank."""
        self._known: set[int] = set()
        self._known_at = clock()

    def close(self) -> None:
        """Let go of the GPUs' driver."""
        self._gpus.close()

    def sample(self, subjects: Collection[RankProcess]) -> list[Telemetry]:
        """`Telemetry` of each rank that lives.

        The CPU is that since the last sample of the rank, None without one or if it is more than 5 s
        old. Two samples in quick succession have the same CPU.
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

    def families(self, ranks: Mapping[int, int]) -> dict[int, list[int]]:
        """By rank, its process and those that it started; `ranks` are their processes."""
        found = self._families({*ranks.values()})
        return {rank: found[pid] for rank, pid in ranks.items()}

    def _follow(self, last: _Record | None, spent: dict[int, CpuTime]) -> _Record:
        now = self._clock()
        if last is None or now - last.at > _FORGOTTEN:
            return _Record(now, spent)
        if now - last.at < _SOONEST:
            return last  # the kernel counts in hundredths of a second
        seconds, owed = spent_since(last.spent, spent, last.owed)
        return _Record(now, spent, owed, 100 * seconds / (now - last.at))

    # ── ranks of processes ──────────────────────────────────────────────────────────────

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
        # The number of a session that has ended may be reused.
        self._owners = {each: who for each, who in self._owners.items() if each in sessions}
        return families

    def _owner(self, session: int, pid: int) -> int | None:
        """The rank of a process and its session: its parent's, unless the session is known."""
        import psutil

        climbed: set[int] = set()
        while session not in self._owners and pid > 1:
            climbed.add(session)
            pid = psutil.Process(pid).ppid()
            session = os.getsid(pid) if pid else 0
        owner = self._owners.get(session)
        self._owners |= dict.fromkeys(climbed, owner)
        return owner

    # ── use of a rank ───────────────────────────────────────────────────────────────────

    def _look(self, family: list[int]) -> _Glance:
        """CPU and memory of a rank's processes, parents mostly before their children.

        Shared memory, libraries and files of a descendant are counted with its rank already. Pages that
        a forked child still shares with its parent count twice: to tell them apart takes milliseconds a
        process.
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
    """Seconds of CPU that processes used between two samples, and the seconds `owed` to the next one.

    All CPU of a process that ended is added to its parent's, once the parent has waited for it; the
    part used before the last sample was counted already. It is owed until then: one sample later than
    the end of the process, or for ever if no process waits for it.
    """
    none = CpuTime(0.0)
    own = sum(max(0.0, each.own - before.get(pid, none).own) for pid, each in now.items())
    reaped = sum(max(0.0, each.reaped - before.get(pid, none).reaped) for pid, each in now.items())
    ended = sum(each.own + each.reaped for pid, each in before.items() if pid not in now)
    return own + max(0.0, reaped - owed - ended), max(0.0, ended - max(0.0, reaped - owed))
