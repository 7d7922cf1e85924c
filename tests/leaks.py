"""What tests may leave behind: processes, folders and values of pools, and the check that there are none."""

from __future__ import annotations

import time
from collections.abc import Iterator
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


def gone_within(seconds: float, before: set[str]) -> set[str]:
    """What is still left after `seconds` of what was not there `before`."""
    until = time.monotonic() + seconds
    while (left := traces() - before) and time.monotonic() < until:
        time.sleep(0.05)
    return left


@contextmanager
def leaves_nothing() -> Iterator[set[str]]:
    """Afterwards nothing is left of what was started within; yields what there was before."""
    before = traces()
    yield before
    left = gone_within(5, before)
    assert not left, f"left behind: {sorted(left)}"
