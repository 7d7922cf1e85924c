"""The line to one machine's agent: commands out, events in. Used by one thread, which waits.

It can be cut and opened anew: commands that the agent did not get are said again, and events go on
where they were, none missing and none twice. What is counted is commands on the way down, and bytes
of the agent's journal on the way up.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque

from skyward_nb.protocol.commands import Attach, Command, Ping
from skyward_nb.protocol.events import Aside, Event, Hello, Leaving, LeftOut, ReclaimNotice
from skyward_nb.protocol.frames import FrameError, event_frames, frame
from skyward_nb.protocol.message_parts import Client

_CHUNK = 1 << 18


class LinkLost(Exception):
    """A machine's line is cut; the text says why, and `found` is what had come in before that."""

    def __init__(self, link: Link, why: str) -> None:
        super().__init__(why)
        self.link = link
        self.found: list[Event] = []


class Link:
    """A stream socket to an agent, for `client`; silent for `patience` seconds, it counts as cut.

    Without an `offset` the agent says where the journal goes on. `ranks` are those of the machine,
    None where that does not matter.
    """

    def __init__(
        self, machine: str, client: Client, patience: float, ranks: frozenset[int] | None = None
    ) -> None:
        self.machine = machine
        self.ranks = ranks
        self.offset: int | None = None
        self.heard: float = 0.0
        self.is_asked: bool = False
        self.may_be_replaced: bool = False
        """Whether the pool goes on with another machine when its own has ended."""
        self.is_over: bool = False
        """Whether its machine has ended for good, so that it is opened no more."""
        self.noticed: ReclaimNotice | None = None
        """That its machine is taken back, once that is known."""
        self._client = client
        self._patience = patience
        self._socket: socket.socket | None = None
        self._greeted = False
        self._frames = event_frames()
        self._buffer = memoryview(bytearray(_CHUNK))
        self._said = 0
        self._kept: deque[bytes] = deque()
        self._waiting = 0

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._socket is not None

    @property
    def is_greeted(self) -> bool:
        """Whether the agent has answered on this connection."""
        return self._greeted

    def open(self, connection: socket.socket) -> None:
        """Speak on this connection from now on; raises `LinkLost`."""
        self.close()
        connection.settimeout(self._patience)
        self._socket = connection
        self._greeted = False
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
        """Say a command, or keep it for when the line is open; raises `LinkLost`, and keeps it then."""
        self.send_later(command)
        self.flush()

    def send_later(self, command: Command) -> None:
        """Say a command with the next one, or when there is a `flush`."""
        self._kept.append(frame(command))
        self._said += 1
        self._waiting += 1

    def flush(self) -> None:
        """Say what waits to be said, once the line is open; raises `LinkLost`, and keeps it then."""
        if self._greeted and self._waiting:
            data = b"".join(list(self._kept)[-self._waiting :])
            self._waiting = 0
            self._write(data)

    def ask(self) -> None:
        """Have the agent say that it is there; raises `LinkLost`."""
        self.is_asked = True
        self._write(frame(Ping()))

    def arrived(self) -> None:
        """All that was said so far has come, as is seen by what followed from it."""
        while len(self._kept) > self._waiting:
            self._kept.popleft()

    def read(self) -> list[Event]:
        """What has come, once `fileno` is readable; raises `LinkLost`."""
        assert self._socket is not None
        found: list[Event] = []
        try:
            size = self._socket.recv_into(self._buffer)
            self.heard, self.is_asked = time.monotonic(), False
            if not size:
                raise LinkLost(self, f"the line to {self.machine} has ended")
            for event, whole in self._frames.feed_both(bytes(self._buffer[:size])):
                if isinstance(event, Hello):
                    self._greet(event)
                elif self.offset is not None and not isinstance(event, Aside):
                    self.offset += event.size if isinstance(event, LeftOut) else len(whole)
                if isinstance(event, ReclaimNotice):
                    self.noticed = event
                if not self._is_its_machines(event):
                    found.append(event)
        except OSError as error:
            raise LinkLost(self, self._cut_by(error)) from error
        except FrameError as error:
            lost = LinkLost(self, f"{self.machine} sent what is no message: {error}")
            lost.found = found
            raise lost from error
        return found

    def _is_its_machines(self, event: Event) -> bool:
        """Whether an agent ends because its machine does, which is asked of whoever rents that out."""
        return self.may_be_replaced and isinstance(event, Leaving) and event.by_machine

    def last_words(self) -> list[Event]:
        """What had come before the line was cut."""
        found: list[Event] = []
        if self._socket is not None:
            self._socket.setblocking(False)
            try:
                while True:
                    found += self.read()
            except LinkLost as lost:
                found += lost.found
        return found

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None
            self._greeted = False

    def _greet(self, hello: Hello) -> None:
        """Go on where the agent is: commands it did not get are said again."""
        self.offset = hello.offset
        self.noticed = hello.noticed
        self._greeted = True
        missing = self._said - hello.received
        again = list(self._kept)[-missing:] if missing > 0 else []
        self._said = hello.received + len(again)
        self._waiting = 0
        for data in again:
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
