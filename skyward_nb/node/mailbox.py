"""Commands from the agent to a rank, in order, and interrupts of the run that they name.

An interrupt is a message and a signal. The signal only makes the rank look for the message, which names
the run: an early interrupt waits, and a late one is void. SIGURG has the same meaning as SIGINT: C's
`system()` drops only SIGINT while it waits for a child.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from skyward_nb.node.deferred_interrupt import DeferredInterrupt
from skyward_nb.node.uplink import Uplink
from skyward_nb.protocol.commands import (
    Command,
    FeedValue,
    Gather,
    Interrupt,
    KeepNames,
    Resume,
)
from skyward_nb.protocol.frames import command_frames
from skyward_nb.runtime.common_step import common_step

C = TypeVar("C", Resume, FeedValue)
_LOOK = 0.2
_ONCE_MORE = 0.05
"""Seconds after which an interrupt is raised again that was lost."""


class Mailbox:
    """Commands from the agent; during a run, `KeyboardInterrupt` when it is interrupted."""

    def __init__(self, connection: socket.socket, uplink: Uplink) -> None:
        self._socket = connection
        self._uplink = uplink
        self._frames = command_frames()
        self._waiting: deque[Command] = deque()
        self._reading = threading.RLock()
        """Whoever has read something puts it behind what came before."""
        self._reader: int | None = None
        """The thread that reads, or puts it there."""
        self._to_look: int | None = None
        """The run of a signal that came while the main thread did so."""
        self._receiving: set[int] = set()
        """The threads that wait for a command of a run, one of which may outlive it."""
        self._running: int | None = None
        self._interrupted: int | None = None
        self._raised: int | None = None
        self._held: int | None = None
        """The run whose interrupt waits until ranks of a training have made the same steps."""
        self._freed: int | None = None
        """The run in which another thread has ended what the main thread waited for."""
        self._looks = 0
        self._handler, self._urgent = self._on_signal, self._on_urgent
        self._put_off = DeferredInterrupt()
        self._main = threading.main_thread().ident or 0
        self._unraisable = sys.unraisablehook
        sys.unraisablehook = self._on_unraisable
        os.register_at_fork(after_in_child=self._as_any_process)

    def next(self) -> Command | None:
        """Wait for the next command; None when the agent is gone."""
        while True:
            # In this order: what another thread has read before it ends is seen.
            may_be_read_elsewhere = self._running is not None or bool(self._receiving)
            if self._waiting:
                return self._waiting.popleft()
            if not self._wait(_LOOK if may_be_read_elsewhere else None):
                return None

    def _wait(self, seconds: float | None) -> bool:
        """Wait for so long until a command has come: the handler of a signal, or another thread, may read it meanwhile.

        False when the agent is gone.
        """
        return not select.select([self._socket], [], [], seconds)[0] or self._take_in()

    def _take_in(self) -> bool:
        """Read all that has come; False when the agent is gone."""
        with self._reading:
            self._reader = thread = threading.get_ident()
            try:
                while data := self._socket.recv(1 << 16, socket.MSG_DONTWAIT):
                    self._waiting.extend(self._frames.feed(data))
            except BlockingIOError:
                data = None
            finally:
                self._reader = None
        if thread == self._main and (run := self._to_look) is not None:
            self._to_look = None
            self._look(run)
        return data is None

    def next_gather(self, run: int) -> Gather | None:
        """Wait for the `Gather` of this run; None when the run is interrupted instead."""
        later: list[Command] = []
        try:
            while (command := self.next()) is not None:
                if isinstance(command, Gather) and command.run == run:
                    return command
                if isinstance(command, Interrupt) and command.run == run:
                    return None
                if isinstance(command, KeepNames):
                    later.append(command)
            return None
        finally:
            self._waiting.extendleft(reversed(later))

    def receive(self, run: int, kind: type[C], is_meant: Callable[[C], bool] = lambda _: True) -> C:
        """Wait for the next command of a kind in this run that is meant; ConnectionError when the agent is gone.

        From any thread; also where the run is over, and nothing comes any more.
        """
        thread, during = threading.get_ident(), self._running
        try:
            self._receiving.add(thread)
            while True:
                for command in tuple(self._waiting):
                    if isinstance(command, kind) and command.run == run and is_meant(command):
                        self._waiting.remove(command)
                        return command
                is_over = self._running is None or self._running != during
                if is_over and thread != self._main:
                    raise ConnectionError(f"run {run} is over")
                if not self._wait(_LOOK):
                    raise ConnectionError("the agent is gone")
        finally:
            self._receiving.discard(thread)

    def has(self, run: int, kind: type[C]) -> bool:
        """Whether a command of a kind in this run has come."""
        self._wait(0)
        return any(isinstance(each, kind) and each.run == run for each in tuple(self._waiting))

    def open(self, run: int) -> None:
        """From now on, an interrupt of this run raises KeyboardInterrupt; one that has come raises at once."""
        self._running = run
        if signal.getsignal(signal.SIGINT) is not self._handler:
            signal.signal(signal.SIGINT, self._handler)
        if signal.getsignal(signal.SIGURG) is not self._urgent:
            signal.signal(signal.SIGURG, self._urgent)
        self._look(run)

    def close(self) -> None:
        """From now on, no interrupt raises."""
        self._running = self._freed = None
        self._put_off.forget()
        self._uplink.interrupted = False

    def free(self, run: int) -> None:
        """Have the next signal of this run raise, though nobody interrupted it: what it waits for will not come."""
        self._freed = run

    def was_interrupted(self, run: int) -> bool:
        """Whether this run was interrupted, or will be: the message may come before its signal."""
        self._take_in()
        waiting = tuple(self._waiting)
        meant = any(isinstance(each, Interrupt) and each.run == run for each in waiting)
        return meant or self.has_raised(run)

    def has_raised(self, run: int) -> bool:
        """Whether an interrupt of this run has raised already, or is put off; code of modules that are imported may have swallowed it."""
        return self._interrupted == run

    def was_heard(self, run: int) -> bool:
        """Whether an interrupt of this run has raised."""
        return self._raised == run

    def _on_signal(self, _number: int, frame: FrameType | None) -> None:
        run = self._running
        if run is not None and not self._put_off.put_off(frame, lambda: self._look(run)):
            self._look(run)

    def _on_urgent(self, number: int, frame: FrameType | None) -> None:
        # The user's own handler of SIGINT stays in charge.
        if signal.getsignal(signal.SIGINT) is self._handler:
            self._on_signal(number, frame)

    def _on_unraisable(self, what: sys.UnraisableHookArgs) -> None:
        """Raise an interrupt again that was lost: what raises in `__del__`, or in a callback, ends there."""
        run = self._running
        if run is None or run != self._interrupted or what.exc_type is not KeyboardInterrupt:
            self._unraisable(what)
            return
        # Not here, where it would be lost again.
        again = threading.Timer(_ONCE_MORE, self._raise_again, (run,))
        again.daemon = True
        again.start()

    def _raise_again(self, run: int) -> None:
        self.free(run)
        signal.pthread_kill(self._main, signal.SIGURG)

    def _look(self, run: int) -> None:
        """Raise, or have the uplink raise, if an interrupt of this run has come and it still goes on."""
        if self._running != run:
            return
        if self._reader == self._main:
            self._to_look = run
            return
        self._looks += 1
        if self._looks > 1:
            return
        try:
            while self._looks:
                self._take_in()
                self._looks -= 1
        finally:
            self._looks = 0
        # Another signal's handler may take from it meanwhile.
        meant = [c for c in tuple(self._waiting) if isinstance(c, Interrupt) and c.run == run]
        for command in meant:
            with contextlib.suppress(ValueError):
                self._waiting.remove(command)
            self._interrupted = run
        if not meant and run not in (self._held, self._freed):
            return
        if self._freed != run and common_step.defers(run, lambda: self._look(run)):
            self._held = run
            return
        self._held = self._freed = None
        self._raised = run
        if self._uplink.sending:
            self._uplink.interrupted = True
        else:
            raise KeyboardInterrupt

    def _as_any_process(self) -> None:
        """In a process forked by user code, signals act as in any Python process."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGURG, signal.SIG_DFL)
        self._running = None
