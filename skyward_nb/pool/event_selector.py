"""The place where a pool's thread waits: for events of all machines, the person's interrupts, and nudges.

An interrupt is one of the events, so it raises nowhere inside our code.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager

from skyward_nb.pool.interrupt_handlers import InterruptTaken
from skyward_nb.pool.link import Link, LinkLost
from skyward_nb.pool.state import Incoming, SigInt
from skyward_nb.protocol.events import Event
from skyward_nb.system.second_look import SecondLook

_INTERRUPT, _NUDGE = b"i", b"n"
_NOTHING = contextlib.nullcontext()


class EventSelector:
    """Waits for links, and for a socket of its own that wakes it."""

    def __init__(self) -> None:
        self._selector = SecondLook()
        self._here, self._there = socket.socketpair()
        self._here.setblocking(False)
        self._there.setblocking(False)
        self._ours: InterruptTaken | None = None
        """While inside `interrupts`, the handler of SIGINT."""
        self._was_woken = False
        self.owes_interrupt: bool = False
        """Whether one came as an event, and it is not known who took it."""
        self._selector.register(self._here, selectors.EVENT_READ)

    def add(self, link: Link) -> None:
        """Add a link."""
        self._selector.register(link, selectors.EVENT_READ)

    def remove(self, link: Link) -> None:
        """Remove a link, if it was added."""
        if link.is_open:
            with contextlib.suppress(KeyError):
                self._selector.unregister(link)

    def ready(self, timeout: float) -> list[object]:
        """The sources with something to `read` within `timeout` seconds."""
        return [key.fileobj for key, _ in self._selector.select(timeout)]

    def read(self, ready: list[object]) -> list[Incoming]:
        """The events of these sources; raises `LinkLost`, with the events before that."""
        found: list[Event] = []
        for link in ready:
            if isinstance(link, Link) and link.is_open:
                try:
                    found += link.read()
                except LinkLost as lost:
                    lost.found[:0] = found
                    raise
        # Last: if a line is cut just now, interrupts wait for the next time.
        woken = self._woken() if self._here in ready else b""
        return [*found, *(SigInt() for byte in woken if byte == _INTERRUPT[0])]

    def nudge(self) -> None:
        """Have `ready` return; from any thread."""
        self._wake(_NUDGE)

    def interrupts(self, *, anew: bool = True) -> contextlib.AbstractContextManager[None]:
        """While inside, SIGINT is a `SigInt` event instead of an exception.

        `anew`: earlier interrupts, too late for their target, are dropped. No effect off the main
        thread, where signals do not arrive.
        """
        if threading.current_thread() is not threading.main_thread():
            return _NOTHING
        if anew and self._was_woken:
            self._woken()
        return _NOTHING if self._ours else self._as_events()

    @contextmanager
    def _as_events(self) -> Generator[None]:
        ours = InterruptTaken(self._interrupted)
        ours.begin()
        self._ours = ours
        try:
            yield
        finally:
            self._ours = None
            ours.end()

    @contextmanager
    def outside(self, *, for_user: bool = False) -> Generator[None]:
        """While inside, SIGINT acts as before `interrupts`; see `OurHandler.as_before`."""
        if threading.current_thread() is not threading.main_thread() or self._ours is None:
            yield
            return
        ours, self._ours = self._ours, None
        try:
            with ours.as_before(for_user=for_user):
                yield
        finally:
            # An exception may have left `interrupts` before this.
            if ours.is_there:
                self._ours = ours

    def _interrupted(self) -> None:
        self.owes_interrupt = True
        self._wake(_INTERRUPT)

    def forget_interrupts(self) -> None:
        """Drop those that came so far."""
        self.owes_interrupt = False
        self._woken()

    def _woken(self) -> bytes:
        self._was_woken = False
        with contextlib.suppress(OSError):  # another thread has read it, or the pool was left
            return self._here.recv(4096)
        return b""

    def close(self) -> None:
        """Close its sockets; links are closed by their owner."""
        self._selector.close()
        self._here.close()
        self._there.close()

    def _wake(self, byte: bytes) -> None:
        try:
            self._there.send(byte)
            self._was_woken = True
        except (BlockingIOError, OSError):
            # Full: the waiting thread wakes up anyway. Closed: none waits.
            return
