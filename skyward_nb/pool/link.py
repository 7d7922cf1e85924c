"""The line to one machine's agent: commands out, events in. Used by one thread at a time.

A cut line is opened again: commands that the agent did not get are sent again, and events continue,
none missing and none twice. Commands are counted by number, events by bytes of the agent's journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar, get_args

from msgspec.structs import replace

from skyward_nb.protocol.commands import Attach, Command, Ping, UseEnvironment
from skyward_nb.protocol.events import (
    Aside,
    Display,
    Event,
    Hello,
    Leaving,
    LeftOut,
    Output,
    ReclaimNotice,
)
from skyward_nb.protocol.frames import FrameError, event_frames, frame
from skyward_nb.protocol.message_parts import Client
from skyward_nb.providers.loop_thread import LoopTask
from skyward_nb.providers.provider_protocol import Machine, MachineEnded
from skyward_nb.words.bundles import HTML, framed
from skyward_nb.words.controls import spelt, with_texts_spelt

T = TypeVar("T")
_CHUNK = 1 << 18
_ASIDE = frozenset(get_args(Aside))
_OF_THE_MACHINE = (Hello, ReclaimNotice, Leaving)


class LinkLost(Exception):
    """A machine's line is cut; the text is the reason, and `found` are the events before that."""

    def __init__(self, link: Link, why: str) -> None:
        super().__init__(why)
        self.link = link
        self.found: list[Event] = []


class Link:
    """A stream socket to an agent, for `client`; after `patience` seconds of silence it counts as cut.

    Without an `offset` the agent chooses the place in its journal. `ranks` are the machine's, None if
    that does not matter.
    """

    def __init__(
        self, machine: str, client: Client, patience: float, ranks: frozenset[int] | None = None
    ) -> None:
        self.machine = machine
        self.ranks = ranks
        self.offset: int | None = None
        self.heard: float = 0.0
        self.is_asked: bool = False
        self.is_greeted: bool = False
        """Whether the agent has answered `Attach` on this connection."""
        self.may_be_replaced: bool = False
        """Whether the pool rents another machine if this one ends."""
        self.asks_why: bool = False
        """Whether the machine itself is asked why its agent was told to end."""
        self.left: str = ""
        """Why its agent has left, in its own words."""
        self.frames_html: bool = False
        """Whether HTML of its ranks is shown in frames, out of reach of the page."""
        self.is_over: bool = False
        """Whether its machine has ended, so that the line is not opened again."""
        self.greeting: Hello | None = None
        """The agent's last answer to `Attach`, on this connection or one before."""
        self.noticed: ReclaimNotice | None = None
        """The notice that its machine is reclaimed, if it came."""
        self.environment: UseEnvironment = UseEnvironment()
        """What the machine's ranks are forked in, as its agent said, or was told since."""
        self._client = client
        self._patience = patience
        self._socket: socket.socket | None = None
        self._frames = event_frames()
        self._buffer = memoryview(bytearray(_CHUNK))
        self._said = 0
        self._kept: deque[tuple[bytes, UseEnvironment | None]] = deque()
        """Commands that the agent may not have got, and which of them order environments."""
        self._waiting = 0

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._socket is not None

    def open(self, connection: socket.socket) -> None:
        """Use this connection from now on; raises `LinkLost`."""
        self.close()
        connection.settimeout(self._patience)
        self._socket = connection
        self.is_greeted = False
        self._frames = event_frames()
        self._write(frame(Attach(self._client, self.offset)))

    def concerns(self, command: Command) -> bool:
        """Whether a command is for ranks of this machine, or for no ranks."""
        ranks: tuple[int, ...] | None = getattr(command, "ranks", None)
        return ranks is None or self.ranks is None or not self.ranks.isdisjoint(ranks)

    def fileno(self) -> int:
        """For selectors."""
        assert self._socket is not None
        return self._socket.fileno()

    def send(self, command: Command) -> None:
        """Send a command now, or when the line is open; raises `LinkLost`, and keeps it then."""
        self.send_later(command)
        self.flush()

    def send_later(self, command: Command) -> None:
        """Send a command with the next one, or with `flush`."""
        order = command if isinstance(command, UseEnvironment) else None
        self._kept.append((frame(command), order))
        self._said += 1
        self._waiting += 1

    def flush(self) -> None:
        """Send the waiting commands, if the line is open; raises `LinkLost`, and keeps them then."""
        if self.is_greeted and self._waiting:
            data = b"".join(data for data, _ in list(self._kept)[-self._waiting :])
            self._waiting = 0
            self._write(data)

    def ask(self) -> None:
        """Have the agent answer; raises `LinkLost`."""
        self.is_asked = True
        self._write(frame(Ping()))

    def arrived(self) -> None:
        """Note that all commands so far have arrived, as their effects show."""
        while len(self._kept) > self._waiting:
            self._kept.popleft()

    def read(self) -> list[Event]:
        """The events that have come, once `fileno` is readable; raises `LinkLost`."""
        assert self._socket is not None
        found: list[Event] = []
        try:
            size = self._socket.recv_into(self._buffer)
            self.heard, self.is_asked = time.monotonic(), False
            if not size:
                raise LinkLost(self, f"the line to {self.machine} has ended")
            for event, whole in self._frames.feed_both(bytes(self._buffer[:size])):
                if self.offset is not None and type(event) not in _ASIDE:
                    self.offset += event.size if isinstance(event, LeftOut) else len(whole)
                if not isinstance(event, _OF_THE_MACHINE) or self._passes_on(event):
                    found.append(self._harmless(event))
        except OSError as error:
            raise LinkLost(self, self._cut_by(error)) from error
        except FrameError as error:
            lost = LinkLost(self, f"{self.machine} sent what is no message: {error}")
            lost.found = found
            raise lost from error
        return found

    def _passes_on(self, event: Hello | ReclaimNotice | Leaving) -> bool:
        """Take in what is said of the machine itself; whether the pool is told of it, too."""
        match event:
            case Hello():
                self._greet(event)
            case ReclaimNotice():
                self.noticed = event
            case Leaving():
                # The provider is asked about an end of the machine itself.
                self.left = event.why
                return not (event.by_machine and (self.may_be_replaced or self.asks_why))
        return True

    def _harmless(self, event: Event) -> Event:
        """An event whose words no terminal obeys; what ranks print is interpreted by the view."""
        if isinstance(event, Output):
            return event
        if not isinstance(event, Display):
            return with_texts_spelt(event)
        data = event.data
        if self.frames_html and HTML in data:
            data = {**data, HTML: framed(data[HTML])}
        plain = {
            spelt(kind): spelt(text) if kind == "text/plain" else text
            for kind, text in data.items()
        }
        return replace(event, data=plain)

    def last_words(self) -> list[Event]:
        """The events before the line was cut."""
        found: list[Event] = []
        if self._socket is not None:
            self._socket.setblocking(False)
            try:
                while True:
                    found += self.read()
            except LinkLost as lost:
                found += lost.found
        return found

    def say_no_more(self) -> None:
        """Close our half of the connection, whose other half the agent closes when it has read all commands."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)

    def await_end(self, until: float) -> None:
        """Wait until the agent has closed its half, at most until then (monotonic seconds).

        Closed by us while it writes, the connection is reset, and commands that it has not read are lost.
        """
        with contextlib.suppress(OSError):
            while self._socket is not None and (left := until - time.monotonic()) > 0:
                self._socket.settimeout(left)
                if not self._socket.recv_into(self._buffer):
                    break

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None
            self.is_greeted = False

    def _greet(self, hello: Hello) -> None:
        """Continue at the agent's offset, and send commands again that it did not get."""
        self.greeting = hello
        self.offset = hello.offset
        self.noticed = hello.noticed
        self.environment = UseEnvironment(hello.rank_python, hello.rank_packages)
        self.is_greeted = True
        missing = self._said - hello.received
        again = list(self._kept)[-missing:] if missing > 0 else []
        self._said = hello.received + len(again)
        self._waiting = 0
        for _, order in again:
            self.environment = order or self.environment
        for data, _ in again:
            self._write(data)

    def _write(self, data: bytes) -> None:
        if self._socket is None:
            raise LinkLost(self, f"there is no line to {self.machine}")
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise LinkLost(self, self._cut_by(error)) from error

    def _cut_by(self, error: OSError) -> str:
        if isinstance(error, TimeoutError):
            return f"{self.machine} has not taken in anything for {self._patience:g} s"
        return f"the line to {self.machine} is cut: {error.strerror or error}"


async def opened_or_ended(machine: Machine) -> socket.socket | MachineEnded:
    """A connection to a machine's agent, or the end of the machine."""
    try:
        return await machine.connect()
    except MachineEnded as ended:
        return ended


async def all_or_none(connects: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all of these, at once; if one fails, no connection is left open."""
    tasks = [asyncio.ensure_future(each) for each in connects]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        for found in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(found, socket.socket):
                found.close()
        raise


class CutLine:
    """A line that is cut: the reason, the time, and the time of the next attempt."""

    def __init__(self, why: str, since: float, due: float) -> None:
        self.why = why
        self.since = since
        self.due = due
        self.opening: LoopTask[socket.socket] | None = None
        """The present attempt."""

    @property
    def is_answered(self) -> bool:
        """Whether the present attempt has come to its end."""
        return self.opening is not None and self.opening.future.done()

    def give_up(self) -> None:
        """Stop the attempt."""
        if self.opening is not None:
            self.opening.give_up()
            with contextlib.suppress(BaseException):
                self.opening.future.result(timeout=0).close()
            self.opening = None
