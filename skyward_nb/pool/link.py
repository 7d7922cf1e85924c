"""The line to one machine's agent: commands out, events into a queue, with back-pressure."""

from __future__ import annotations

import asyncio
from queue import SimpleQueue

from skyward_nb.wire.frames import FrameError, event_frames, frame
from skyward_nb.words.messages import Command, Event

_MUCH = 2000
_LITTLE = 200


class LinkLost:
    """Said into the queue when a machine's line is cut; `why` in words."""

    def __init__(self, link: Link, why: str) -> None:
        self.link = link
        self.why = why


class SigInt:
    """Said into the queue when the person interrupts."""


class Nudge:
    """Said into the queue to wake the main thread; means nothing by itself."""


Incoming = Event | LinkLost | SigInt | Nudge


class Link(asyncio.Protocol):
    """Lives on the loop thread; the main thread reads the queue."""

    def __init__(self, machine: str, inbox: SimpleQueue[Incoming]) -> None:
        self.machine = machine
        self._inbox = inbox
        self._frames = event_frames()
        self._transport: asyncio.Transport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way down."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        """Queue what the agent says; stop reading while the main thread is far behind."""
        try:
            for event in self._frames.feed(data):
                self._inbox.put(event)
        except FrameError as error:
            self._inbox.put(LinkLost(self, f"it sent what is no message: {error}"))
            self.close()
        if self._inbox.qsize() > _MUCH and self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the main thread, unless we hung up ourselves."""
        if not self._closing:
            self._inbox.put(LinkLost(self, str(exc) if exc else "its agent is gone"))

    def send(self, command: Command) -> None:
        """Write a command; from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._write, frame(command))

    def caught_up(self) -> None:
        """The main thread has read; go on reading if we had stopped. From the main thread."""
        if self._paused and self._loop is not None and self._inbox.qsize() < _LITTLE:
            self._loop.call_soon_threadsafe(self._resume)

    def close(self) -> None:
        """Hang up; on the loop thread."""
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _resume(self) -> None:
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
