"""The agent's end of one connection: with its client, or with a process that asks for the agent's status.

A client is sent the journal from the offset at which it attached, at the pace at which it reads:
what it missed and what is new come the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
from typing import TYPE_CHECKING

from skyward_nb.node.journal import Journal
from skyward_nb.protocol.commands import Attach, Command, Heartbeat, Inspect, Ping, QueryStatus
from skyward_nb.protocol.events import Aside, Leaving, Pong
from skyward_nb.protocol.frames import FrameError, command_frames, frame

if TYPE_CHECKING:
    from skyward_nb.node.clients import Clients

_CHUNK = 1 << 18
_UNCOUNTED = (Attach, Heartbeat, QueryStatus, Ping)


class ClientConnection(asyncio.BufferedProtocol):
    """One connection to the agent."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._frames = command_frames()
        self._transport: asyncio.Transport | None = None
        self._closed = asyncio.Event()
        self._asides: list[bytes] = []
        self._buffer = memoryview(bytearray(_CHUNK))
        self._journal: Journal | None = None
        self.is_paused: bool = False
        """Whether the peer is behind, so that what is new waits in the journal."""
        self._is_due = False
        self._is_visitor = False
        self._beat: asyncio.TimerHandle | None = None
        self._within = 0.0
        """Seconds without a heartbeat after which it hangs up; 0: none is expected."""
        self.cursor: int = 0
        self.received: int = 0
        """Commands that came from this client, also on earlier connections."""

    @property
    def is_client(self) -> bool:
        """Whether this is the client's connection, not a visitor's."""
        return self._journal is not None

    @property
    def is_closed(self) -> bool:
        """Whether it has ended."""
        return self._closed.is_set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for its first command."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer that the loop reads into."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Handle the commands that came; hang up if the bytes are none."""
        if self._within:
            self._expect_more()  # no heartbeat comes within a large command
        try:
            for command, whole in self._frames.feed_both(bytes(self._buffer[:nbytes])):
                self._take(command, whole)
        except FrameError:
            self.hang_up()

    def _take(self, command: Command, whole: bytes) -> None:
        match command:
            case Attach() if not self.is_client:
                self._clients.attach(self, command)
            case QueryStatus():
                self._is_visitor = True
                self._clients.visit(self)
            case Ping() if self.is_client or self._is_visitor:
                self.say(Pong())
            case Heartbeat(within=within):
                self._within = within
                self._expect_more()
            case Inspect(ranks=ranks) if self.is_client or self._is_visitor:
                self.received += 1
                self._clients.inspect(self, ranks)
            case _ if self.is_client and not isinstance(command, _UNCOUNTED):
                self.received += 1
                self._clients.take(command, whole)
            case _:
                raise FrameError("its first command was neither Attach nor QueryStatus")

    def _expect_more(self) -> None:
        """Hang up if no heartbeat comes in time: the client cannot be reached."""
        if self._beat is not None:
            self._beat.cancel()
        self._beat = asyncio.get_running_loop().call_later(self._within, self.hang_up)

    def pause_writing(self) -> None:
        """The peer reads too slowly: the rest waits in the journal."""
        self.is_paused = True

    def resume_writing(self) -> None:
        """The peer has read what was written."""
        self.is_paused = False
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone."""
        if self._beat is not None:
            self._beat.cancel()
        self._closed.set()
        self._clients.hung_up_on(self)

    def is_gone(self) -> bool:
        """Whether the peer has hung up, even if the loop has not noticed yet."""
        if self._transport is None or self._transport.is_closing():
            return True
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
        return bool(poll.poll(0))

    def follow(self, journal: Journal, offset: int) -> None:
        """Send the journal from `offset` on, and what will be appended."""
        self._journal = journal
        self.cursor = offset
        self.nudge()

    def say(self, event: Aside | Leaving) -> None:
        """Send an event that is not in the journal."""
        self._asides.append(frame(event))
        self.nudge()

    def nudge(self) -> None:
        """Send what is new; events of one turn of the loop leave in one write."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_due = False
        if self._transport is None or self._transport.is_closing():
            return
        data = b"".join(self._asides)
        self._asides.clear()
        while self._journal is not None and not self.is_paused:
            more, self.cursor = self._journal.read(self.cursor)
            if not more:
                break
            # A small aside and a small event leave in one write.
            self._transport.write(data + more if data else more)
            data = b""
        if data:
            self._transport.write(data)
        self._clients.caught_up()

    def hang_up(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    async def finish(self) -> None:
        """Send the rest, and hang up."""
        if self._transport is not None:
            self._flush()
            self._transport.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), 1)
