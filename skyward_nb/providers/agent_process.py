"""A pool's agent on this machine: its start, its signals, and its end, after which nothing is left."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator

from skyward_nb.providers.folders import PoolFolders, end_agent, is_gone, remove_folders
from skyward_nb.providers.orphans import end_processes
from skyward_nb.system import processes, slices_note
from skyward_nb.system.package_path import environ_with
from skyward_nb.system.second_look import SecondLook

_START_LIMIT = 30.0
_END_LIMIT = 5.0
_REST_LIMIT = 8.0
"""Seconds for the forge of an agent that was killed: with those of `_END_LIMIT`, longer than `processes.TIDYING`."""
_POLL = 0.01
_LAST_WORDS = 2000


class AgentProcess:
    """The agent of a pool: a process of a session of its own, started here or by another process.

    Its ranks have a folder of `packages` beside this Python's own, or "".
    """

    def __init__(self, folders: PoolFolders, packages: str = "") -> None:
        self._folders = folders
        self._packages = packages
        self._agent: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its number, if it was started here."""
        return self._agent and self._agent.pid

    def start(self, idle: float, ttl: float, preload: list[str]) -> None:
        """Start it; `is_ready` tells whether it listens."""
        folders = self._folders
        safely = ["-P"] if sys.flags.safe_path else []
        places = map(str, (folders.runtime, folders.store, folders.spill))
        assert folders.lock is not None
        lock = folders.lock.fileno()
        command = [sys.executable, *safely, "-m", "skyward_nb.node", str(lock), *places]
        command += [str(idle), str(ttl), *preload]
        with (folders.runtime / "agent.log").open("wb") as log:
            self._agent = subprocess.Popen(  # noqa: S603 - our own program
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                pass_fds=[lock],
                env=environ_with(self._packages) | {processes.MARK: str(folders.runtime)},
            )
        folders.let_go()

    def is_ready(self) -> bool:
        """Wait until it listens; False if it has ended, or did not listen in time."""
        assert self._agent is not None
        assert self._agent.stdout is not None
        with self._agent.stdout as said, SecondLook() as selector:
            selector.register(said, selectors.EVENT_READ)
            return bool(selector.select(_START_LIMIT)) and said.readline() == b"ready\n"

    def last_words(self, most: int = _LAST_WORDS) -> str:
        """The end of its log, which forge and ranks share."""
        try:
            with (self._folders.runtime / "agent.log").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - most))
                return file.read().decode(errors="replace").strip()
        except OSError:
            return ""

    def wait(self) -> None:
        """Wait for its end, if it was started here."""
        if self._agent is not None:
            self._agent.wait()

    def signal(self, number: int) -> None:
        """Send it a signal, if it was started here and lives."""
        if self._agent is not None:
            self._agent.send_signal(number)

    def cancel(self) -> None:
        """Undo a start that failed, or was cut short."""
        if self._agent is None:
            remove_folders(self._folders)
        else:
            self.remove(told=False)

    def remove(self, *, told: bool) -> None:
        """Wait for the end of an agent that was `told` to stop, end another, and remove its files."""
        for pause in self.removing(told=told):
            time.sleep(pause)

    def removing(self, *, told: bool) -> Iterator[float]:
        """What `remove` does, with the seconds to wait between its steps."""
        self._folders.let_go()  # it is free, then, where no agent was started
        agent, folder = self._agent, self._folders.runtime
        # GPUs take their time to be put together.
        limit = _END_LIMIT + (slices_note.PATIENCE if slices_note.is_noted(folder) else 0)
        if agent is None:
            # Another process has started it.
            yield from _until(lambda: is_gone(folder), limit)
            if not is_gone(folder):
                end_agent(folder)
        else:
            if not told:
                agent.terminate()
            yield from _until(lambda: agent.poll() is not None, limit)
            if agent.poll() is None:
                agent.kill()
                agent.wait()
        if folder.exists():
            # The forge of a killed agent ends the rest, unless it was killed, too.
            yield from _until(lambda: not processes.noted(folder), _REST_LIMIT)
            end_processes([folder])
        if left := remove_folders(self._folders):
            warnings.warn(left, stacklevel=2)


def _until(is_over: Callable[[], bool], limit: float) -> Iterator[float]:
    """Pauses until it is over, `limit` seconds in all; an interpreter that exits has no executor to wait in."""
    for _ in range(int(limit / _POLL)):
        if is_over():
            return
        yield _POLL
