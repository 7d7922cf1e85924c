"""The agent's end of one who talks to it: the client that conducts, or a passer-by who looks.

What a client is told comes out of the journal, from where it was when it came: what is new and
what it missed are one reading, at the pace at which it takes it in.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
from typing import Protocol

from skyward_nb.protocol.commands import Attach, Command, Heartbeat, Inspect, Ping, QueryStatus
from skyward_nb.protocol.events import Aside, Leaving, Pong
from skyward_nb.protocol.frames import FrameError, command_frames, frame

_CHUNK = 1 << 18
_UNCOUNTED = (Attach, Heartbeat, QueryStatus, Ping)


class JournalReader(Protocol):
    """What can be read from an offset on."""

    def read(self, offset: int, most: int = ...) -> tuple[bytes, int]:
        """Whole frames from `offset` on, and the offset after them."""
        ...


class CommandHandler(Protocol):
    """Who does what a client says."""

    def attach(self, line: ClientConnection, command: Attach) -> None:
        """Take the client, or refuse it."""
        ...

    def look(self, line: ClientConnection) -> None:
        """Tell a passer-by how things are."""
        ...

    def hung_up_on(self, line: ClientConnection) -> None:
        """Whoever it was is gone."""
        ...

    def obey(self, command: Command, data: bytes) -> None:
        """Do what a command says; `data` is its frame, to be passed on."""
        ...

    def inspect_for(self, line: ClientConnection, command: Inspect) -> None:
        """Tell this line where the threads of ranks are."""
        ...

    def caught_up(self, line: ClientConnection) -> None:
        """The client has taken in what it was behind with."""
        ...


class ClientConnection(asyncio.BufferedProtocol):
    """One connection to the agent."""

    def __init__(self, agent: CommandHandler) -> None:
        self._agent = agent
        self._frames = command_frames()
        self._transport: asyncio.Transport | None = None
        self._closed = asyncio.Event()
        self._asides: list[bytes] = []
        self._buffer = memoryview(bytearray(_CHUNK))
        self._journal: JournalReader | None = None
        self._is_paused = False
        self._is_due = False
        self._looks = False
        self._beat: asyncio.TimerHandle | None = None
        self._within = 0.0
        """Seconds in which something comes from who is there; 0: as may be."""
        self.cursor: int = 0
        self.received: int = 0
        """Commands that came by this client, also before this line."""

    @property
    def conducts(self) -> bool:
        """Whether this is the client's line."""
        return self._journal is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for who it is."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the loop puts what comes in."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Obey; one that speaks another language is hung up on."""
        if self._within:
            self._expect_more()  # what is large has no beats within
        try:
            for command, whole in self._frames.feed_both(bytes(self._buffer[:nbytes])):
                self._take(command, whole)
        except FrameError:
            self.hang_up()

    def _take(self, command: Command, whole: bytes) -> None:
        match command:
            case Attach() if not self.conducts:
                self._agent.attach(self, command)
            case QueryStatus():
                self._looks = True
                self._agent.look(self)
            case Ping() if self.conducts or self._looks:
                self.say(Pong())
            case Heartbeat(within=within):
                self._within = within
                self._expect_more()
            case Inspect() if self.conducts or self._looks:
                self.received += 1
                self._agent.inspect_for(self, command)
            case _ if self.conducts and not isinstance(command, _UNCOUNTED):
                self.received += 1
                self._agent.obey(command, whole)
            case _:
                raise FrameError("it did not say who it is")

    def _expect_more(self) -> None:
        """Hang up if the line's carrier says nothing any more: whoever it was cannot be reached."""
        if self._beat is not None:
            self._beat.cancel()
        self._beat = asyncio.get_running_loop().call_later(self._within, self.hang_up)

    def pause_writing(self) -> None:
        """It reads too slowly: the rest waits in the journal."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """It has caught up with what was written."""
        self._is_paused = False
        self._flush()
        self._agent.caught_up(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone; the pool goes on for its lease."""
        if self._beat is not None:
            self._beat.cancel()
        self._closed.set()
        self._agent.hung_up_on(self)

    def is_gone(self) -> bool:
        """Whether the other end has hung up, though it was not read so far."""
        if self._transport is None or self._transport.is_closing():
            return True
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
        return bool(poll.poll(0))

    def follow(self, journal: JournalReader, offset: int) -> None:
        """Tell all of the journal from `offset` on, and what will come."""
        self._journal = journal
        self.cursor = offset
        self.nudge()

    def say(self, event: Aside | Leaving) -> None:
        """Say something that is not in the journal."""
        self._asides.append(frame(event))
        self.nudge()

    def nudge(self) -> None:
        """There is something to tell; what comes in one turn of the loop leaves in one write."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_due = False
        if self._transport is None or self._transport.is_closing():
            return
        data = b"".join(self._asides)
        self._asides.clear()
        while self._journal is not None and not self._is_paused:
            more, self.cursor = self._journal.read(self.cursor)
            if not more:
                break
            # A small aside and a small event leave in one write.
            self._transport.write(data + more if data else more)
            data = b""
        if data:
            self._transport.write(data)

    def hang_up(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    async def finish(self) -> None:
        """Send what there is to tell, and hang up."""
        if self._transport is not None:
            self._flush()
            self._transport.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), 1)
