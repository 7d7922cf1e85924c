"""A rank's control thread: it acts while the main thread is stuck in native code.

It reads from its own socket, one message a packet: it examines the main thread's stack, cuts its
communication, takes the socket for the rendezvous of a new generation, and passes requests on to the debugger.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from skyward_nb.compat.known_frames import A_COMPUTATION_OF_JAX
from skyward_nb.node.rank_frameworks import RankFrameworks
from skyward_nb.node.stack_pipe import OTHERS_END
from skyward_nb.plugins.collectives import (
    called_at,
    frames_of_thread,
    waits_in,
)
from skyward_nb.protocol.commands import (
    Command,
    CutCommunication,
    DebugRequest,
    Inspect,
    Interrupt,
    MachineReclaimed,
    Reserve,
)
from skyward_nb.protocol.events import CommunicationCut, Event
from skyward_nb.protocol.frames import FrameError, command_frames
from skyward_nb.runtime import preempt
from skyward_nb.runtime.common_step import common_step
from skyward_nb.system.processes import computing_threads
from skyward_nb.system.thread_frames import looking

_LARGEST = 1 << 16
_LOOKS = 4
_BETWEEN_LOOKS = 0.01
_MOST_FRAMES = 100
_MOST_OF_THREADS = 7 << 15
_FROM_ANYONE = {"work.wait", "store.get", "block_until_ready", A_COMPUTATION_OF_JAX}
"""Calls known by a method's name alone, which might be another, quick method."""
_BY_OTHER_THREADS = {"block_until_ready", A_COMPUTATION_OF_JAX}
_STILL_LOOKS = 3
_BETWEEN_STILL_LOOKS = 0.02
_BUSY = 0.2
_LISTENING = {"sleep", "acquire", "wait", "join", "select", "poll", "recv", "read", "waitpid"}
"""Functions of Python that wait, and that an interrupt ends."""


class ControlThread:
    """Obeys `CutCommunication` and takes sockets, whatever the main thread does."""

    def __init__(
        self,
        connection: socket.socket,
        stacks: int,
        rank: int,
        frameworks: RankFrameworks,
        emit: Callable[[Event], None],
        debug: Callable[[DebugRequest], None],
        free: Callable[[int], None],
    ) -> None:
        self._socket = connection
        self._stacks = stacks
        self._rank = rank
        self._frameworks = frameworks
        self._emit = emit
        self._debug = debug
        self._free = free
        self._main = threading.main_thread().ident or 0
        self._arrived = threading.Condition()
        self._rendezvous: tuple[int, int] | None = None
        self._run: int | None = None
        self._last = self._void = 0
        self._cut_in: int | None = None
        self._saw = ""
        os.register_at_fork(after_in_child=connection.close)
        threading.Thread(target=self._serve, name="skyward-control", daemon=True).start()

    def begin(self, run: int) -> None:
        """The main thread is in this run from now on."""
        self._run = self._last = run
        common_step.begin(run)

    def end(self, left_in: str) -> None:
        """The main thread is in no run; the last one was stopped in this collective, or ""."""
        self._run = None
        common_step.end(left_in)

    def begin_anew(self) -> None:
        """There will be another group: what is to be cut for an earlier run is not that one."""
        self._void = self._last

    def was_cut(self, run: int) -> bool:
        """Whether communication was cut while the main thread was in this run."""
        return self._cut_in == run

    def saw(self, run: int) -> str:
        """The collective that the main thread waited in when it was cut in this run; or ""."""
        return self._saw if self._cut_in == run else ""

    def rendezvous(self, generation: int, patience: float) -> int:
        """The socket that was sent for this generation, once it is here; TimeoutError without it."""
        with self._arrived:
            here = self._arrived.wait_for(
                lambda: self._rendezvous is not None and self._rendezvous[0] == generation, patience
            )
            if not here or self._rendezvous is None:
                raise TimeoutError("the socket for the rendezvous did not come")
            descriptor = self._rendezvous[1]
            self._rendezvous = None
            return descriptor

    def _serve(self) -> None:
        # Signals are the main thread's, which sleeps on if another one takes them.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(
                    self._socket, _LARGEST, 1, socket.MSG_CMSG_CLOEXEC
                )
                if not data:
                    return
                for command in command_frames().feed(data):
                    self._obey(command, descriptors)
            except (OSError, FrameError):
                return
            for unused in descriptors:
                os.close(unused)

    def _obey(self, command: Command, descriptors: list[int]) -> None:
        if isinstance(command, CutCommunication):
            try:
                answer = self._answer(command)
            except Exception:  # noqa: BLE001 - a framework's own; without an answer nobody goes on
                answer = CommunicationCut(command.run, self._rank)
            self._emit(answer)
        elif isinstance(command, DebugRequest):
            self._debug(command)
        elif isinstance(command, Interrupt):
            common_step.interrupted(command.run, command.patience, self._wake)
        elif isinstance(command, Inspect):
            os.write(self._stacks, self._other_threads() + OTHERS_END)
        elif isinstance(command, MachineReclaimed):
            preempt.taken_back(command)
        elif isinstance(command, Reserve) and descriptors:
            with self._arrived:
                if self._rendezvous is not None:
                    os.close(self._rendezvous[1])
                self._rendezvous = command.generation, descriptors.pop()
                self._arrived.notify_all()

    def _wake(self) -> None:
        """Have the main thread look for its interrupt."""
        signal.pthread_kill(self._main, signal.SIGURG)

    def _other_threads(self) -> bytes:
        """The stacks of all threads but the main one, in the format of `faulthandler`."""
        with looking():
            blocks = [
                _stack(ident, frame)
                for ident, frame in sys._current_frames().items()
                if ident not in (self._main, threading.get_ident())
            ]
        return "".join(blocks).encode("ascii", "backslashreplace")[:_MOST_OF_THREADS]

    def _answer(self, command: CutCommunication) -> CommunicationCut:
        run = self._run
        waited_in = on_gpu = ""
        is_to_be_cut = run is None and command.also_idle and command.run > self._void
        if run == command.run and not common_step.is_agreeing(command.run):
            waited_in = self._waits_in() or self._hidden_wait()
            on_gpu = "" if waited_in else self._awaited_on_gpu()
            waited_in = waited_in or on_gpu
            is_to_be_cut = bool(waited_in)
        if not is_to_be_cut:
            return CommunicationCut(command.run, self._rank)
        self._cut_in, self._saw = run, waited_in
        if on_gpu:
            # Once cut, the main thread's call returns as if all were well: what is on the GPU then is no result.
            self._free(command.run)
            self._wake()
        cut = [plugin.cut() for plugin in self._frameworks.plugins]
        return CommunicationCut(command.run, self._rank, waited_in, any(cut))

    def _waits_in(self) -> str:
        """The collective of the main thread; ambiguous ones are examined several times."""
        found = ""
        seen: set[tuple[int, int]] = set()
        for _ in range(_LOOKS):
            with looking():
                frame = self._frame()
                frames, where = tuple(frames_of_thread(frame)), _where(frame)
            found = waits_in(frames)
            if found not in _FROM_ANYONE:
                return found
            seen.add(where)
            if len(seen) > 1 or _computes(found):
                return ""
            time.sleep(_BETWEEN_LOOKS)
        return found

    def _hidden_wait(self) -> str:
        """What of a plugin the main thread may wait in unseen: it is interrupted, and stays.

        It is at one place, in native code that does not listen, and nothing in this process computes, or
        would if it had a processor.
        """
        hidden = next((each.hidden for each in self._frameworks.plugins if each.hidden), "")
        busy = self._stays(lambda: _computes(hidden)) if hidden else None
        return hidden if busy is not None and busy < _BUSY else ""

    def _awaited_on_gpu(self) -> str:
        """The collective of a GPU that the main thread waits for: there is one, and it stays where it is."""
        return self._on_gpu() if self._on_gpu() and self._stays() is not None else ""

    def _on_gpu(self) -> str:
        found = (each.awaited_on_gpu() for each in self._frameworks.plugins)
        return next(filter(None, found), "")

    def _stays(self, computes: Callable[[], bool] = lambda: False) -> float | None:
        """The share of a processor that this process takes while the main thread is at one place for a few looks.

        None if it does not stay there, or `computes`, or is in code that listens.
        """
        with looking():
            frame = self._frame()
        if frame is None or called_at(frame.f_code, frame.f_lasti) in _LISTENING:
            return None
        before, began, spent = _where(frame), time.monotonic(), time.process_time()
        for _ in range(_STILL_LOOKS):
            time.sleep(_BETWEEN_STILL_LOOKS)
            with looking():
                now = _where(self._frame())
            if computes() or before != now:
                return None
        return (time.process_time() - spent) / (time.monotonic() - began)

    def _frame(self) -> FrameType | None:
        """The frame that the main thread is in."""
        return sys._current_frames().get(self._main)


def _stack(ident: int, frame: FrameType | None) -> str:
    lines = [f"Thread 0x{ident:016x} (most recent call first):"]
    while frame is not None and len(lines) <= _MOST_FRAMES:
        code = frame.f_code
        lines.append(f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}')
        frame = frame.f_back
    return "\n".join(lines) + "\n\n"


def _computes(found: str) -> bool:
    """Whether the main thread computes, or for JAX a native thread: it is slow then, and not stuck."""
    threads = computing_threads()
    if found not in _BY_OTHER_THREADS:
        return os.getpid() in threads
    of_python = {each.native_id for each in threading.enumerate()} - {os.getpid()}
    return bool(threads - of_python)


def _where(frame: FrameType | None) -> tuple[int, int]:
    return (id(frame), frame.f_lasti) if frame is not None else (0, 0)
