"""What tests may leave behind: processes, folders and values of pools, and the check that there are none."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

from skyward_nb.providers import folders
from skyward_nb.system import processes

GO_ON: list[Callable[[], set[str]]] = []
"""What is meant to outlive a test, by those who will end it, as `traces` names it."""


def places() -> dict[str, str]:
    """The variables by which agents that do not inherit them have their folders where these are looked for."""
    names = ("SKYWARD_RUNTIME_DIR", "SKYWARD_STORE_DIR", "SKYWARD_SPILL_DIR")
    return {name: os.environ[name] for name in names}


def ours() -> set[int]:
    """Processes that run this package's agent, forge or ranks for these tests.

    Each test looks twice, and while it waits: read from /proc, that costs a fifth of what psutil's objects do.
    """
    root = f"{folders.runtime_root()}/".encode()
    found: set[int] = set()
    for pid in psutil.pids():
        # It may have ended meanwhile.
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as words:
            line = words.read()
            if b"skyward_nb.node" in line and root in line:
                found.add(pid)
    return found


def traces() -> set[str]:
    """Everything a pool may leave: processes, runtime folders, stored values, children."""
    values = (folders.store_root(), folders.spill_root())
    stores = {str(path) for root in values for path in root.glob("*")}
    runtimes = {str(path) for path in folders.runtime_root().glob("*")}
    # Linux may leave one out while another ends: proc(5), `children`.
    found = set[int]().union(*(processes.children(os.getpid()) for _ in range(2)))
    children = {f"child {pid}" for pid in found}
    return {f"process {pid}" for pid in ours()} | stores | runtimes | children


def gone_within(
    seconds: float, before: set[str], kept: Callable[[], set[str]] = frozenset
) -> set[str]:
    """What is still left after `seconds` of what was not there `before`, and is not `kept`."""
    until = time.monotonic() + seconds
    while (left := traces() - before - kept() - going_on()) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def going_on() -> set[str]:
    """What is meant to outlive the test."""
    return set[str]().union(*(each() for each in GO_ON))


@contextmanager
def leaves_nothing(kept: Callable[[], set[str]] = frozenset) -> Iterator[set[str]]:
    """Afterwards nothing is left of what was started within, but what is `kept`; yields what there was before."""
    before = traces()
    yield before
    left = gone_within(30, before, kept)
    if left:
        clear(left)
    assert not left, f"left behind: {sorted(left)}"


def clear(left: set[str]) -> None:
    """End and remove what one test has left behind, so that the next ones do not meet it."""
    pids = {int(word.split()[1]) for word in left if word.startswith(("process ", "child "))}
    found = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(found, timeout=5)
    folders.sweep()
