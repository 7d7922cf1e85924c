"""The line to one machine's agent: commands out, events in. Used by one thread, which waits.

Not reading is the back-pressure: an agent whose client is behind lets its ranks wait.
"""

from __future__ import annotations

import socket

from skyward_nb.wire.frames import FrameError, event_frames, frame
from skyward_nb.words.messages import Command, Event

_CHUNK = 1 << 18


class LinkLost(Exception):
    """A machine's line is cut; the text says why."""


class Link:
    """A stream socket to an agent."""

    def __init__(self, machine: str, connection: socket.socket) -> None:
        self.machine = machine
        self._socket = connection
        self._socket.setblocking(True)
        self._frames = event_frames()
        self._buffer = memoryview(bytearray(_CHUNK))

    def fileno(self) -> int:
        """For selectors."""
        return self._socket.fileno()

    def send(self, command: Command) -> None:
        """Write a command; raises `LinkLost`."""
        try:
            self._socket.sendall(frame(command))
        except OSError as error:
            raise LinkLost(f"the line to {self.machine} is cut: {error.strerror}") from error

    def read(self) -> list[Event]:
        """What has come, once `fileno` is readable; raises `LinkLost`."""
        try:
            size = self._socket.recv_into(self._buffer)
            events = self._frames.feed(bytes(self._buffer[:size]))
        except OSError as error:
            raise LinkLost(f"the line to {self.machine} is cut: {error.strerror}") from error
        except FrameError as error:
            raise LinkLost(f"{self.machine} sent what is no message: {error}") from error
        if not size:
            raise LinkLost(f"the agent on {self.machine} is gone")
        return events

    def close(self) -> None:
        """Hang up."""
        self._socket.close()
