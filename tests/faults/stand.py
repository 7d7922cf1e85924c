"""The pool that cases use one after another, and the look at what is left after each."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import time
from pathlib import Path

import psutil
from faults.hands import agent_of, children, forge_of
from faults.matrix import Case, Fault
from leaks import traces
from pools import start, values

from skyward_nb.providers import folders
from skyward_nb.providers.loop_thread import LOOP

GRACE = 0.5
GRACE_OF_MANY = 1.5
GRACE_IN_A_GROUP = 2.0
GRACE_WHERE_ALL_STAY = 20.0
HEARTBEAT = 0.1
IDLE = 2.0
_SETTLES = 20.0
"""Seconds that all may take that goes by itself; more is a leak, or the lease of a client gone."""


class Stand:
    """One pool at a time, alive for as long as cases leave it alive."""

    def __init__(self) -> None:
        self.pool = None
        self._of: tuple[object, ...] = ()
        self._before = traces()
        self._others = relatives()
        """What this process started before, such as a JupyterLab: no case has to do with it."""
        self._own = psutil.Process()
        # Made once, before anything is counted: the loop, and the thread beside it.
        LOOP.start(asyncio.to_thread(int)).future.result()

    def options(self, case: Case) -> dict[str, object]:
        """What a pool for this case is made with."""
        options = {
            "nodes": case.size,
            "grace": grace_of(case),
            "heartbeat": HEARTBEAT,
            "framework": case.framework,
        }
        return options | ({"idle": IDLE} if case.fault is Fault.CLIENT_GONE else {})

    def take(self, case: Case):
        """A pool as the case needs it: the one there is, or a new one."""
        options = self.options(case)
        if self._of != tuple(options.items()):
            self.close()
        if self.pool is None or self.pool.closed:
            self.pool = start(**options)
            self._of = tuple(options.items())
            values(self.pool, "1")
        return self.pool

    def put(self, pool) -> None:
        """Another client's view of the pool takes the place of the one there was."""
        self.pool = pool

    def close(self) -> None:
        """End the pool, if there is one."""
        if self.pool is not None:
            self.pool.close()
        self.pool = None

    def clear(self) -> None:
        """After a case that went wrong: end all there is, so that the next one has it as it should be."""
        self.close()
        for pid in relatives() - self._others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        folders.sweep()
        self._before = traces()

    # ── what is left ────────────────────────────────────────────────────────────────────

    def census(self) -> tuple[int, int]:
        """Descriptors and threads of this process."""
        return self._own.num_fds(), self._own.num_threads()

    def left(self, census: tuple[int, int]) -> str:
        """What is there that should not be, after a moment for what goes by itself."""
        until = time.monotonic() + _SETTLES
        while (found := self._look(census)) and time.monotonic() < until:
            gc.collect()
            time.sleep(0.02)
        return found

    def _look(self, census: tuple[int, int]) -> str:
        expected = self._family()
        found = relatives() - self._others
        if found != expected:
            strange = {pid: _spell(pid) for pid in found - expected}
            return f"processes {strange} are left, {expected - found} are missing"
        if strange := traces() - self._before - self._traces_of_the_living(expected):
            return f"left behind: {sorted(strange)}"
        for name, now, before in zip(
            ("descriptors", "threads"), self.census(), census, strict=True
        ):
            if now > before:
                return f"{now} {name} of this process, there were {before}: {_open_files()}"
        return ""

    def _family(self) -> set[int]:
        """Agent, forge and ranks of the pool that is alive: these, and no zombie beside them."""
        if self.pool is None or self.pool.closed:
            return set()
        agent = agent_of(self.pool)
        forge = forge_of(agent)
        ranks = set(self.pool.pids.values())
        strange = {*children(agent), *children(forge)} - {forge, *ranks}
        return {agent, forge, *ranks} if not strange else {agent, forge, *ranks, -1}

    def _traces_of_the_living(self, pids: set[int]) -> set[str]:
        if not pids:
            return set()
        own = folders.pool_folders(self.pool.pool_id)
        living = {f"process {pid}" for pid in pids} | {f"child {pid}" for pid in pids}
        return living | {str(own.runtime), str(own.store)}


def grace_of(case: Case) -> float:
    """Short where ranks are killed after it; where none may be, none is late."""
    if case.keeps_all:
        return GRACE_WHERE_ALL_STAY
    if case.framework:
        return GRACE_IN_A_GROUP
    return GRACE_OF_MANY if case.size > 4 else GRACE


def relatives() -> set[int]:
    """Processes that descend from pools of these tests, whatever they have become since."""
    mark = b"SKYWARD_RUNTIME_DIR=" + os.fsencode(folders.runtime_root())
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.add(int(folder.name))
    return found


def _spell(pid: int) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(psutil.Process(pid).cmdline()[:4])
    return "gone now"


def _open_files() -> list[str]:
    found = []
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(path.readlink()))
    return sorted(found)[-12:]
