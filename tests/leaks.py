"""What tests may leave behind: processes, folders and values of pools, and the check that there are none."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

from skyward_nb.providers import folders


def ours() -> set[int]:
    """Processes that run this package's agent, forge or ranks for these tests."""
    found: set[int] = set()
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        words = " ".join(process.info["cmdline"] or ())
        if "skyward_nb.node" in words and str(folders.runtime_root()) in words:
            found.add(process.info["pid"])
    return found


def traces() -> set[str]:
    """Everything a pool may leave: processes, runtime folders, stored values, children."""
    values = (folders.store_root(), folders.spill_root())
    stores = {str(path) for root in values for path in root.glob("*")}
    runtimes = {str(path) for path in folders.runtime_root().glob("*")}
    children = {f"child {child.pid}" for child in psutil.Process().children()}
    return {f"process {pid}" for pid in ours()} | stores | runtimes | children


def gone_within(
    seconds: float, before: set[str], kept: Callable[[], set[str]] = frozenset
) -> set[str]:
    """What is still left after `seconds` of what was not there `before`, and is not `kept`."""
    until = time.monotonic() + seconds
    while (left := traces() - before - kept()) and time.monotonic() < until:
        time.sleep(0.05)
    return left


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
