"""Processes of this machine, identified: never by a number alone, and never by name.

Numbers are reused, so a process is identified by its number and its start time; or by a pool's
folder in its environment, which every process of a pool has. Both are in Linux's /proc; without
it, nothing is found and nothing is ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

MARK = "SKYWARD_POOL"
"""The variable with a pool's folder, in the environment of each process of the pool."""

TIDYING = 10.0
"""Seconds that a process may go on to remove the shared memory of others; PyTorch's waits two seconds first.

What it has not removed by then stays until the machine is booted: a guard for one that hangs."""

_LIST = "processes"
_POLL = 0.005
_DYING = 2.0
_ENDING = 0x4
_PROC = Path("/proc")
_MOST = 4096
"""Bytes of a process's state, which has 52 numbers and a name of 15 bytes."""


@dataclass(frozen=True)
class ProcessIdentity:
    """A process: its number, and its start time in clock ticks since the machine's."""

    pid: int
    started: int


@dataclass(frozen=True)
class ProcessStat:
    """The content of /proc/PID/stat; a process that `ends` runs no code any more."""

    parent: int
    group: int
    started: int
    ends: bool


def stat(pid: int) -> ProcessStat | None:
    """The state of a process, None if there is none. Source: proc_pid_stat(5)."""
    try:
        file = os.open(f"{_PROC}/{pid}/stat", os.O_RDONLY)
    except OSError:
        return None
    try:
        text = os.read(file, _MOST).decode(errors="replace")
    except OSError:
        return None
    finally:
        os.close(file)
    words = text.rpartition(")")[2].split()
    ends = words[0] in "ZXx" or bool(int(words[6]) & _ENDING)
    return ProcessStat(int(words[1]), int(words[2]), int(words[19]), ends)


def computing_threads() -> set[int]:
    """The ids of this process's threads that run, or wait for a processor; the caller's is left out."""
    found: set[int] = set()
    for path in (_PROC / "self/task").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (path / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] == "R":
                found.add(int(path.name))
    return found - {threading.get_native_id()}


def name_this(name: str) -> None:
    """Have `top`, `ps` and others show this process by a name of at most 15 bytes (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name)


def known(pid: int) -> ProcessIdentity | None:
    """The identity of a process that exists now."""
    found = stat(pid)
    return None if found is None else ProcessIdentity(pid, found.started)


def lives(process: ProcessIdentity) -> bool:
    """Whether it exists and is not ending; a zombie does not live."""
    found = stat(process.pid)
    return found is not None and found.started == process.started and not found.ends


# ── the list of a pool's processes ──────────────────────────────────────────────────────


def note(folder: Path, processes: Iterable[ProcessIdentity], *, anew: bool = False) -> None:
    """Add processes to the list in a pool's folder, or begin it anew with them.

    If the list cannot be written, processes are still found by their mark.
    """
    lines = [f"{process.pid} {process.started}\n" for process in processes]
    with contextlib.suppress(OSError):
        if anew:
            new = folder / f"{_LIST}.new"
            new.write_text("".join([f"{_machine()}\n", *lines]))
            new.rename(folder / _LIST)
            return
        with (folder / _LIST).open("a") as file:
            file.write("".join(lines))


def noted(folder: Path) -> set[ProcessIdentity]:
    """The processes in a pool's list that still live; empty for a list of another machine."""
    try:
        machine, *lines = (folder / _LIST).read_text().splitlines() or [""]
    except OSError:
        return set()
    if machine != _machine():
        return set()
    found: set[ProcessIdentity] = set()
    for line in lines:
        # The writer may have been killed in the middle of a line.
        with contextlib.suppress(ValueError):
            pid, started = map(int, line.split())
            if lives(process := ProcessIdentity(pid, started)):
                found.add(process)
    return found


def boot() -> str:
    """An id of this boot of this machine; containers have their machine's."""
    with contextlib.suppress(OSError):
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return socket.gethostname()


def _machine() -> str:
    """The scope in which process numbers are comparable: one boot, and one pid namespace."""
    try:
        return f"{boot()} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return "unknown"


# ── what carries a pool's mark ──────────────────────────────────────────────────────────


def marked() -> dict[ProcessIdentity, Path]:
    """Processes of this user that a pool started, and that pool's folder.

    This process and its ancestors are left out. So are processes in containers, where a folder of the
    same name is another folder.
    """
    user, own = os.getuid(), _line_of(os.getpid())
    found: dict[ProcessIdentity, Path] = {}
    for pid in _pids():
        with contextlib.suppress(OSError):
            if pid in own or (_PROC / str(pid)).stat().st_uid != user:
                continue
            if _mounts(pid) != _mounts(os.getpid()):
                continue
            before = known(pid)
            folder = _mark_of(pid)
            if folder is not None and before is not None and lives(before):
                found[before] = folder
    return found


def _mounts(pid: int) -> Path:
    """The mount namespace of a process, as a name to compare; raises OSError."""
    return (_PROC / str(pid) / "ns/mnt").readlink()


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir(_PROC) if name.isdigit()]  # noqa: PTH208
    except OSError:
        return []


def _line_of(pid: int) -> set[int]:
    """A process and its ancestors."""
    line: set[int] = set()
    while pid > 0 and pid not in line and (found := stat(pid)) is not None:
        line.add(pid)
        pid = found.parent
    return line


def _mark_of(pid: int) -> Path | None:
    """The pool's folder in the initial environment of a process."""
    wanted = os.fsencode(MARK) + b"="
    for entry in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
        if entry.startswith(wanted):
            return Path(os.fsdecode(entry[len(wanted) :]))
    return None


def arguments(pid: int) -> list[str]:
    """The command line of a process, empty if it cannot be read."""
    try:
        data = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(word) for word in data.split(b"\0") if word]


def mentioned(folder: str) -> bool:
    """Whether this folder is in the command line of any process."""
    return any(folder in arguments(pid) for pid in _pids())


def children(pid: int) -> set[int]:
    """The children of a process, of all its threads."""
    lists = list((_PROC / str(pid) / "task").glob("*/children"))
    if not lists:  # not every kernel is built with them
        return {each for each in _pids() if (there := stat(each)) and there.parent == pid}
    found: set[int] = set()
    for path in lists:
        with contextlib.suppress(OSError):
            found |= {int(word) for word in path.read_text().split()}
    return found


def tidies(pid: int) -> float:
    """Seconds that a process may go on to remove shared memory of dead processes; 0 if it does not do that.

    Such are the trackers of `multiprocessing` and joblib, and PyTorch's manager; they end by themselves
    some time after the last process that uses them. A process that is mistaken for one lives only so much longer.
    """
    words = arguments(pid)
    is_tracker = any("resource_tracker import main" in word for word in words)
    is_manager = bool(words) and words[0].endswith("torch_shm_manager")
    return TIDYING if is_tracker or is_manager else 0.0


# ── ending ──────────────────────────────────────────────────────────────────────────────


def end(processes: Iterable[ProcessIdentity], wait: float = 0.0) -> int:
    """Kill processes that still live after `wait` seconds, and wait for their end; how many there were.

    Those that tidy up get time for it when the others are gone.
    """
    mine = [process for process in processes if lives(process)]
    patience = {process: tidies(process.pid) for process in mine}
    others = [process for process in mine if not patience[process]]
    tidying = [process for process in mine if patience[process]]
    for group, seconds in ((others, wait), (tidying, max(patience.values(), default=0.0))):
        _await(group, seconds)
        for process in group:
            _kill(process)
        _await(group, _DYING)
    return len(mine)


def end_group(group: int) -> None:
    """Kill the processes of a process group one by one, except those that tidy up."""
    for pid in _pids():
        found = stat(pid)
        if found is not None and found.group == group and not tidies(pid):
            _kill(ProcessIdentity(pid, found.started))


def end_children() -> None:
    """Kill and reap all children of this process, adopted ones too, until none is left.

    Those that tidy up may do so first.
    """
    until: dict[int, float] = {}
    while mine := children(os.getpid()):
        now = time.monotonic()
        for pid in mine:
            if pid not in until:
                until[pid] = now + tidies(pid)
            if until[pid] <= now:
                kill_child(pid)
        reaped = list(_reap())
        for pid in reaped:
            until.pop(pid, None)
        if not reaped:
            time.sleep(_POLL)


def kill_child(pid: int) -> None:
    """Kill a child of this process: until it is reaped, no other process gets its number."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _reap() -> Iterator[int]:
    with contextlib.suppress(ChildProcessError):
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            yield pid


def _kill(process: ProcessIdentity) -> None:
    """Kill this process, and no later one with the same number.

    A descriptor holds it while its identity is checked, where the system has that (Linux 5.3).
    """
    held = None
    with contextlib.suppress(AttributeError, OSError):
        held = os.pidfd_open(process.pid)
    try:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if not lives(process):
                return
            if held is None:
                os.kill(process.pid, signal.SIGKILL)
            else:
                signal.pidfd_send_signal(held, signal.SIGKILL)
    finally:
        if held is not None:
            os.close(held)


def _await(processes: Iterable[ProcessIdentity], seconds: float) -> None:
    """Wait until these processes have ended, at most so long."""
    until = time.monotonic() + seconds
    while any(lives(process) for process in processes) and time.monotonic() < until:
        time.sleep(_POLL)
