"""The tests many times in a row, every second time on a machine that is shaken: `make soak N=20`.

`python tests/soak.py N FROM COMMAND ...` runs a command for the FROM-th to the N-th time: `make soak N=20 FROM=9` goes on
where it was ended. While the machine is shaken, two loops keep the processors busy, and one process after another of
those that the command has started is stopped, with all its threads, for up to a second. It is stopped as a debugger does
it, so that a process which a test has stopped itself (SIGSTOP) stays so, and nothing stays stopped when this program ends.
Processes in a sandbox of their own are left alone: that of OpenSSH's logins lacks the call by which Linux goes on with a wait
that was stopped (`restart_syscall`), and ends them for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import psutil

_LOGS = Path(__file__).parents[1] / "build" / "soak"
_BUSY_LOOPS = 2
_POLL = 0.001
_PAUSES, _STOPS = (0.1, 1.0), (0.05, 1.0)
"""Seconds between two stops, and of one: by chance from the shortest to the longest."""

Counter: TypeAlias = Any
"""A number that processes share."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_SEIZE, _INTERRUPT, _DETACH, _ALL_CHILDREN = 0x4206, 0x4207, 17, 0x40000000
_SET_CHILD_SUBREAPER = 36
SPARED = "not-by-the-soak"
"""In the command of a process that a test stops itself: only one can do that."""


def _traced(request: int, thread: int, data: int = 0) -> bool:
    return _libc.ptrace(request, thread, None, data) == 0


def stop(pid: int, seconds: float) -> int:
    """Stop all threads of a process for so long; returns how many there were."""
    try:
        threads = [int(each.name) for each in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return 0
    held = [each for each in threads if _traced(_SEIZE, each)]
    for each in held:
        _traced(_INTERRUPT, each)
    # Only a thread that has stopped can be let go: with the signal that it was about to get, if any.
    # One that could not be held is not waited for: it is somebody else's, or has ended.
    signals: dict[int, int] = {each: 0 for each in threads if each not in held}
    while len(signals) < len(threads):
        # All in turn, again and again: a main thread that was killed, or another that calls `exec`, goes on once all
        # others are taken notice of, also those that had stopped, or were let go a moment ago, and are dead since.
        for each in threads:
            if (number := _signal_at_stop(each)) is not None:
                signals[each] = number
        time.sleep(_POLL)
    time.sleep(seconds)
    for each, number in signals.items():
        _traced(_DETACH, each, number)
    return len(held)


def sandboxed(pid: int | str) -> str:
    """What Linux says of the filters on a process's calls; "" of one that is gone."""
    with contextlib.suppress(OSError):
        said = Path(f"/proc/{pid}/status").read_text()
        return "".join(line for line in said.splitlines() if line.startswith("Seccomp"))
    return ""


def stoppable(root: int, spare: set[int]) -> list[int]:
    """The processes below one, but for these, and for those in a sandbox."""
    there = {each.pid for each in psutil.Process(root).children(recursive=True)} - spare
    return sorted(each for each in there if not _is_spared(each))


def _is_spared(pid: int) -> bool:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        return SPARED.encode() in words.split(b"\0") or sandboxed(pid) != sandboxed("self")
    return True


def reap() -> None:
    """Take notice of threads that were killed while they were stopped, or else they stay as zombies."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG | _ALL_CHILDREN)[0]:
            """Another one."""


def _signal_at_stop(thread: int) -> int | None:
    """Whether a thread has stopped, or ended: the signal whose delivery stopped it, or 0; else None."""
    try:
        found, status = os.waitpid(thread, _ALL_CHILDREN | os.WNOHANG)
    except ChildProcessError:
        return 0
    if not found:
        return None
    is_event = status >> 16 != 0
    return os.WSTOPSIG(status) if os.WIFSTOPPED(status) and not is_event else 0


def _compute() -> None:
    while True:
        """Take what there is of a processor."""


def _shake(seed: int, root: int, spared: list[int], stopped: Counter) -> None:
    """Stop processes below this one, one at a time, until this process is ended."""
    dice = random.Random(seed)
    while True:
        time.sleep(dice.uniform(*_PAUSES))
        reap()
        spare = {os.getpid(), *spared}
        found, seconds = stoppable(root, spare), dice.uniform(*_STOPS)
        # It may have gone into a sandbox while the others were looked at.
        if found and not _is_spared(pid := dice.choice(found)):
            stopped.value += stop(pid, seconds) > 0


@contextmanager
def shaken(seed: int) -> Iterator[Counter]:
    """Within, the machine is busy, and processes below this one are stopped now and then; how often."""
    stopped: Counter = multiprocessing.Value("i", 0)
    busy = [multiprocessing.Process(target=_compute, daemon=True) for _ in range(_BUSY_LOOPS)]
    for each in busy:
        each.start()
    spared = [each.pid for each in busy if each.pid is not None]
    stopping = multiprocessing.Process(
        target=_shake, args=(seed, os.getpid(), spared, stopped), daemon=True
    )
    stopping.start()
    try:
        yield stopped
    finally:
        for each in (stopping, *busy):
            each.kill()


def _to_its_end(command: list[str], log: Path) -> int:
    """Run a command; what its processes leave behind without a parent is a child of this one."""
    with log.open("wb") as out:
        running = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    while True:
        # Whatever ends is taken in at once, as a machine's init does.
        pid, status = os.waitpid(-1, 0)
        if pid == running.pid:
            running.returncode = os.waitstatus_to_exitcode(status)
            return running.returncode


def main(count: int, first: int, command: list[str]) -> int:
    """Print a line for each run; returns how many have failed."""
    _libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _LOGS.mkdir(parents=True, exist_ok=True)
    failed = 0
    for number in range(first, count + 1):
        log = _LOGS / f"run-{number:02}.log"
        began = time.monotonic()
        with shaken(number) if number % 2 == 0 else contextlib.nullcontext() as stopped:
            status = _to_its_end(command, log)
        stops = None if stopped is None else stopped.value
        failed += status != 0 or stops == 0
        said = log.read_text(errors="replace")
        closing = re.findall(r"^=* ?(\d+ (?:passed|failed|error).*?)[ =]*$", said, re.M)
        how = "quiet" if stops is None else f"{stops} stops"
        words = closing[-1] if closing else f"ended with {status}"
        print(f"{number:3} {how:10} {time.monotonic() - began:6.0f} s  {words}", flush=True)
        for line in re.findall(r"^(?:FAILED|ERROR) .*$", said, re.M):
            print(f"      {line}", flush=True)
    print(f"{count - first + 1 - failed} passed, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])))
