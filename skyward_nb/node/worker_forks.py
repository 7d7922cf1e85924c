"""Workers of torchrun that a forge forks for agents among its ranks, each as long as its connection."""

from __future__ import annotations

import contextlib
import importlib
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec

from skyward_nb.runtime import worker_process
from skyward_nb.runtime.worker_process import (
    LARGEST,
    SOCKET,
    ForkWorker,
    WorkerEnded,
    WorkerForked,
    WorkerOrder,
    WorkerRefused,
    WorkerWord,
)
from skyward_nb.system import processes
from skyward_nb.words.decoding import from_msgpack


class WorkerForks:
    """Listens in the folder of a pool; `become_new` makes a forked process one of its own."""

    def __init__(self, folder: Path, become_new: Callable[[], None]) -> None:
        self._path = folder / SOCKET
        self._become_new = become_new
        self._lines: set[socket.socket] = set()
        self._of: dict[int, socket.socket] = {}
        self._listener: socket.socket | None = None
        self._selector: selectors.BaseSelector | None = None

    @property
    def pids(self) -> set[int]:
        """The workers that have not ended."""
        return {*self._of}

    def listen(self, selector: selectors.BaseSelector) -> None:
        """Take orders from now on; `hear` is to be called where there are some."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._path.unlink(missing_ok=True)  # a forge before this one had it
        self._listener.bind(os.fspath(self._path))
        self._listener.listen(64)
        self._selector = selector
        selector.register(self._listener, selectors.EVENT_READ)

    def hear(self, line: object) -> None:
        """Take an order, or a new connection, or the end of one."""
        assert self._listener is not None
        assert self._selector is not None
        if line is self._listener:
            new, _ = self._listener.accept()
            self._lines.add(new)
            self._selector.register(new, selectors.EVENT_READ)
            return
        assert isinstance(line, socket.socket)
        try:
            data = line.recv(LARGEST)
            order = from_msgpack(data, WorkerOrder) if data else None
        except (OSError, msgspec.MsgspecError):
            order = None
        if order is None:
            self._hang_up(line)
        elif isinstance(order, ForkWorker):
            self._fork(order, line)
        else:
            _import_modules()

    def _hang_up(self, line: socket.socket) -> None:
        """End the worker of a connection that is over."""
        assert self._selector is not None
        self._selector.unregister(line)
        self._lines.discard(line)
        for pid in [pid for pid, own in self._of.items() if own is line]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        line.close()

    def _fork(self, order: ForkWorker, line: socket.socket) -> None:
        why = worker_process.why_not(order, os.environ) or _import_modules()
        if why:
            _say(line, WorkerRefused(why))
            return
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            self._live(order, writer)
        os.close(writer)
        os.read(reader, 1)  # from then on it may be signalled as a group
        os.close(reader)
        self._of[pid] = line
        _say(line, WorkerForked(pid))

    def _live(self, order: ForkWorker, begun: int) -> None:
        """Be the worker, to its end; closes `begun` once it has a session of its own."""
        code = 70
        try:
            os.setsid()
            os.close(begun)
            processes.name_this(Path(sys.executable).name)
            self._become_new()
            code = worker_process.be_worker(order)
        except BaseException:  # noqa: BLE001 - into the log of the agent: nobody else can be told
            traceback.print_exc()
        finally:
            try:
                with contextlib.suppress(Exception):
                    worker_process.flush()
                if code < 0:
                    signal.signal(-code, signal.SIG_DFL)
                    os.kill(os.getpid(), -code)
            finally:
                os._exit(code & 0xFF)  # nothing leads back into the forge

    def ended(self, pid: int, code: int) -> None:
        """Tell who asked for a worker how it ended."""
        line = self._of.pop(pid, None)
        if line is not None and line in self._lines:
            _say(line, WorkerEnded(code))

    def close(self) -> None:
        """Close all connections."""
        for each in (*self._lines, *([self._listener] if self._listener else [])):
            each.close()


def _import_modules() -> str:
    """Import what workers need; why that cannot be, or ""."""
    try:
        for name in worker_process.MODULES:
            importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - a broken installation raises anything
        return f"{type(error).__name__}: {error}"
    return ""


def _say(line: socket.socket, word: WorkerWord) -> None:
    """Tell an agent; that it is gone is noticed where its orders come from."""
    with contextlib.suppress(OSError):
        line.send(msgspec.msgpack.encode(word))
