"""Where a pool's thread waits: for events of all machines, the person's interrupts, and nudges.

An interrupt is an entry among the others, so none of our own code is torn by one.
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from skyward_nb.pool.link import Link, LinkLost
from skyward_nb.pool.state import Incoming, SigInt
from skyward_nb.protocol.events import Event

_INTERRUPT, _NUDGE = b"i", b"n"


@contextmanager
def calm() -> Generator[None]:
    """While inside, SIGINT does nothing: what is done here must not be torn."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class EventSelector:
    """Waits on links and on a socket of its own, by which it is woken."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._here, self._there = socket.socketpair()
        self._here.setblocking(False)
        self._there.setblocking(False)
        self._outside: list[Any] = []
        """What SIGINT was before `interrupts`, while they go on."""
        self._was_woken = False
        self._selector.register(self._here, selectors.EVENT_READ)

    def add(self, link: Link) -> None:
        """Listen to one more link."""
        self._selector.register(link, selectors.EVENT_READ)

    def remove(self, link: Link) -> None:
        """Listen to a link no more; safe where it was not listened to."""
        if link.is_open:
            with contextlib.suppress(KeyError):
                self._selector.unregister(link)

    def wait(self, timeout: float) -> list[Incoming]:
        """What came in within `timeout` seconds, or nothing; raises `LinkLost`, with what came before."""
        return self.read(self.ready(timeout))

    def ready(self, timeout: float) -> list[object]:
        """Where there is something to `read` within `timeout` seconds."""
        return [key.fileobj for key, _ in self._selector.select(timeout)]

    def read(self, ready: list[object]) -> list[Incoming]:
        """What came in; raises `LinkLost`, with what came before."""
        found: list[Event] = []
        for link in ready:
            if isinstance(link, Link) and link.is_open:
                try:
                    found += link.read()
                except LinkLost as lost:
                    lost.found[:0] = found
                    raise
        # Last: when a line is cut just now, interrupts wait here for the next time.
        woken = self._woken() if self._here in ready else b""
        return [*found, *(SigInt() for byte in woken if byte == _INTERRUPT[0])]

    def interrupt(self) -> None:
        """Interrupt whoever waits; from any thread."""
        self._wake(_INTERRUPT)

    def nudge(self) -> None:
        """End a `wait`; from any thread."""
        self._wake(_NUDGE)

    @contextmanager
    def interrupts(self, *, anew: bool = True) -> Generator[None]:
        """While inside, SIGINT is a `SigInt` among what comes in instead of an exception.

        `anew`: one that came before, too late for what it meant, is forgotten. Off the main thread
        nothing is changed: signals do not arrive there.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        if anew:
            self._forget_interrupts()
        if self._outside:
            yield
            return
        before = signal.signal(signal.SIGINT, lambda *_: self._wake(_INTERRUPT))
        self._outside.append(before)
        try:
            yield
        finally:
            self._outside.pop()
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def outside(self) -> Generator[None]:
        """While inside, SIGINT is what it was before `interrupts`: for code of the user's own."""
        if threading.current_thread() is not threading.main_thread() or not self._outside:
            yield
            return
        before = self._outside.pop()
        ours = signal.signal(signal.SIGINT, before)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, ours)
            self._outside.append(before)

    def _woken(self) -> bytes:
        self._was_woken = False
        with contextlib.suppress(BlockingIOError):  # another thread has forgotten it
            return self._here.recv(4096)
        return b""

    def _forget_interrupts(self) -> None:
        """One that came too late for what it meant must not hit what begins now."""
        if self._was_woken:
            self._woken()

    def close(self) -> None:
        """Let go of the sockets; links are closed by their owner."""
        self._selector.close()
        self._here.close()
        self._there.close()

    def _wake(self, byte: bytes) -> None:
        try:
            self._there.send(byte)
            self._was_woken = True
        except (BlockingIOError, OSError):
            # Full: whoever waits is awake anyway. Closed: nobody waits.
            return
