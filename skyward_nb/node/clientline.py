"""The agent's end of its client: commands in, events out, and who waits when one is behind."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol

from skyward_nb.wire.frames import FrameError, command_frames, frame
from skyward_nb.words.messages import Command, Leaving

_CHUNK = 1 << 18


class Servant(Protocol):
    """Who does what a client says."""

    def attached(self, client: ClientLine) -> bool:
        """Take a client, or refuse it."""
        ...

    def detached(self, client: ClientLine) -> None:
        """The client hung up."""
        ...

    def obey(self, command: Command, data: bytes) -> None:
        """Do what a command says; `data` is its frame, to be passed on."""
        ...

    def hold(self, held: bool) -> None:
        """Let ranks wait while the client is behind with reading, or go on."""
        ...


class ClientLine(asyncio.BufferedProtocol):
    """The agent's end of its client."""

    def __init__(self, agent: Servant) -> None:
        self._agent = agent
        self._frames = command_frames()
        self._transport: asyncio.Transport | None = None
        self._closed = asyncio.Event()
        self._outgoing: list[bytes] = []
        self._buffer = memoryview(bytearray(_CHUNK))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Introduce ourselves, or say that somebody is here already."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self._agent.attached(self):
            transport.write(frame(Leaving("another client is attached")))
            transport.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the loop puts what comes in."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Obey; a client that speaks another language is hung up on."""
        try:
            for command, whole in self._frames.feed_both(bytes(self._buffer[:nbytes])):
                self._agent.obey(command, whole)
        except FrameError:
            if self._transport is not None:
                self._transport.abort()

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self._agent.hold(True)

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._agent.hold(False)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone; the pool goes on for its lease."""
        self._closed.set()
        self._agent.detached(self)

    def send(self, data: bytes) -> None:
        """Queue bytes for the client; what comes in one turn of the loop leaves in one write."""
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outgoing.append(data)

    def _flush(self) -> None:
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    async def finish(self) -> None:
        """Send what is queued and hang up."""
        if self._transport is not None:
            self._flush()
            self._transport.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), 1)
