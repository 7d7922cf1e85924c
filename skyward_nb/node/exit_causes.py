"""The causes of the deaths of ranks, in words.

A crash has a signal of its own. For a SIGKILL, the kernel's counters of out-of-memory kills, in the rank's
control group and on the machine, are compared with those while the rank lived.
"""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from skyward_nb.system import processes
from skyward_nb.words.errors import spell_size

_RECENT = 1.0
_MACHINE = Path("/proc/vmstat")
_CRASHES: dict[int, str] = {
    signal.SIGSEGV: "a memory fault in native code",
    signal.SIGBUS: "a fault on mapped memory; a file got shorter, or /dev/shm is full",
    signal.SIGILL: "native code made for another processor, or a trap in it",
    signal.SIGFPE: "an arithmetic fault in native code, such as a division by zero",
    signal.SIGABRT: "native code called abort()",
    signal.SIGTRAP: "a trap in native code",
    signal.SIGSYS: "a system call that is forbidden here",
}
_GAVE_UP = "Fatal Python error: Aborted"
"""What `faulthandler` writes first of a rank that gave up, before it looks at threads that still run,
which may be a memory fault."""
_LIMITS: dict[int, str] = {
    signal.SIGXCPU: "the CPU time limit was reached (ulimit -t)",
    signal.SIGXFSZ: "the file size limit was reached (ulimit -f)",
}
HUNG_UP = (
    "closed the connection to its agent (os.closerange, or a close of descriptors not its own)"
)

CHANGED_USER = (
    "gave up the user of the pool (os.setuid), without whom no value can be read or written"
)
ENDED = "ended earlier"
"""Of a rank that is gone, where nobody has seen how."""

Counts = dict[Path, int]


@dataclass
class _Life:
    """The record of a living rank: the counters of its control groups, innermost first."""

    pid: int
    groups: tuple[Path, ...] = ()
    held: int | None = None
    known: str = ""
    """Why it was ended, or closed its connection, while it lived; in words."""


@dataclass
class _Look:
    """The values of the counters at a time."""

    at: float
    counts: Counts = field(default_factory=dict[Path, int])


class ExitCauses:
    """Tells how ranks died; `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lives: dict[int, _Life] = {}
        self._told: dict[int, str] = {}
        self._last, self._earlier = _Look(clock()), _Look(clock())

    def born(self, rank: int, pid: int) -> None:
        """A rank began to live."""
        self._told.pop(rank, None)
        self._lives[rank] = _Life(pid)
        self._find_groups([self._lives[rank]])

    def saw(self, rank: int, held: int) -> None:
        """Remember how many bytes of memory a rank holds; one that is ending holds none any more."""
        if held and (life := self._lives.get(rank)) is not None:
            life.held = held

    def look(self) -> None:
        """Remember what the counters say: what rose long before a death is no evidence for it."""
        now = self._clock()
        self._find_groups(self._lives.values())
        if now - self._last.at >= _RECENT:
            self._earlier = self._last
            self._last = _Look(now, {path: _count(path) for path in self._last.counts})

    def hung_up(self, rank: int) -> None:
        """A rank's connection was closed: by itself, unless it was about to end anyway."""
        life = self._lives.get(rank)
        if life is not None and (found := processes.stat(life.pid)) is not None and not found.ends:
            life.known = CHANGED_USER if _has_other_user(life.pid) else HUNG_UP

    def ended_for(self, rank: int, why: str) -> None:
        """A rank is about to be killed for what it does."""
        if (life := self._lives.get(rank)) is not None:
            life.known = why

    def how(self, rank: int, code: int, *, asked: bool, said: str = "", crash: str = "") -> str:
        """How a rank ended that had this exit code, or minus the signal that killed it.

        `said` is what its native code said of that before it gave up, `crash` what `faulthandler`
        wrote: both may meet with another signal on the way to their end.
        """
        life = self._lives.pop(rank, None) or _Life(0)
        if -code in _CRASHES and crash.startswith(_GAVE_UP):
            code = -signal.SIGABRT
        gave_up = said if code < 0 and not asked else ""
        self._told[rank] = gave_up or self._how(life, code, asked=asked)
        return self._told[rank]

    def told(self, rank: int) -> str:
        """How a rank ended that was already gone when it was needed."""
        return self._told.get(rank, ENDED)

    @property
    def all_told(self) -> Mapping[int, str]:
        """How each rank ended that has not begun to live again since."""
        return self._told

    def _how(self, life: _Life, code: int, *, asked: bool) -> str:
        if code >= 0:
            return life.known or f"exited with code {code}"
        name = name_of(-code)
        if (why := _CRASHES.get(-code)) is not None:
            return f"crashed: {name}, {why}"
        if (why := _LIMITS.get(-code)) is not None:
            return f"killed by {name}: {why}"
        if -code != signal.SIGKILL or asked:
            return f"killed by {name}"
        return life.known or f"killed by {name}{self._evidence(life)}"

    # ── memory that ran out ─────────────────────────────────────────────────────────────

    def _find_groups(self, lives: Iterable[_Life]) -> None:
        for life in lives:
            groups, found = control_groups(life.pid), processes.stat(life.pid)
            if found is not None and not found.ends:  # one that ends has left its groups (v1)
                life.groups = groups
            for path in (*life.groups, _MACHINE):
                if path not in self._last.counts:
                    self._last.counts[path] = _count(path)

    def _evidence(self, life: _Life) -> str:
        """Evidence that memory ran out, and how much the rank held."""
        before = self._last.counts | self._earlier.counts
        rose = {path: _count(path) - before.get(path, 0) for path in (*life.groups, _MACHINE)}
        held = "" if life.held is None else f"; it held {spell_size(life.held)}"
        if life.groups and (more := rose[life.groups[0]]) > 0:
            self._used_up(life.groups)
            return f": memory ran out (oom_kill of its control group rose by {more}){held}"
        around = [path for path in (*life.groups[1:], _MACHINE) if rose[path] > 0]
        if not around:
            return " (from outside; no sign of memory running out)"
        where = "this machine" if around == [_MACHINE] else "a control group around its own"
        self._used_up(around)
        if not life.groups:
            return f": memory ran out (oom_kill of {where} rose by {rose[around[0]]}){held}"
        return (
            f", perhaps because memory ran out: oom_kill of {where} rose by "
            f"{rose[around[0]]}, that of its own control group did not{held}"
        )

    def _used_up(self, paths: Iterable[Path]) -> None:
        """One kill explains one death: it is no evidence for the next one."""
        for path in {*paths, _MACHINE}:
            for look in (self._last, self._earlier):
                if path in look.counts:
                    look.counts[path] += 1


def name_of(number: int) -> str:
    """A signal's name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _has_other_user(pid: int) -> bool:
    """Whether a process runs as another user than this one."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    return any(each.startswith("Uid:") and int(each.split()[2]) != os.geteuid() for each in lines)


def control_groups(pid: int) -> tuple[Path, ...]:
    """The files that count kills for want of memory in a process's control groups, its own first.

    Sources: the kernel's documents "Control Group v2" (memory.events, which counts what is below,
    too) and "Memory Resource Controller" (memory.oom_control, v1).
    """
    try:
        return _groups_in(Path(f"/proc/{pid}/cgroup").read_text())
    except OSError:
        return ()


@functools.lru_cache(64)
def _groups_in(text: str) -> tuple[Path, ...]:
    lines = text.splitlines()
    found: list[Path] = []
    for mount, root, name, controller in _hierarchies():
        for line in lines:
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(","):
                found += _from_within(mount, _below(root, path), name)
    return tuple(found)


def _from_within(mount: Path, inner: str, name: str) -> Iterable[Path]:
    folder = mount / inner
    for group in (folder, *folder.parents):
        if (group / name).is_file():
            yield group / name
        if group == mount:
            return


def _below(root: str, path: str) -> str:
    """A group's place below what is mounted; what lies outside of it is not to be seen."""
    if ".." in path.split("/"):
        return ""
    if root != "/" and (path == root or path.startswith(root + "/")):
        path = path[len(root) :]
    return path.strip("/")


@functools.cache
def _hierarchies() -> list[tuple[Path, str, str, str]]:
    """Mount points of memory control groups, with their roots, files and controllers."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return []
    found: list[tuple[Path, str, str, str]] = []
    for line in lines:
        words, _, rest = line.partition(" - ")
        kind, _, options = (*rest.split(), "", "", "")[:3]
        _, _, _, root, mount, *_ = words.split()
        if kind == "cgroup2":
            found.append((Path(mount), root, "memory.events", ""))
        elif kind == "cgroup" and "memory" in options.split(","):
            found.append((Path(mount), root, "memory.oom_control", "memory"))
    return found


def _count(path: Path) -> int:
    """The counter `oom_kill` of a file; 0 where it cannot be read."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
