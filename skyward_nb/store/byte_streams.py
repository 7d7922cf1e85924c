"""Carriers of a value stream's bytes: a socket, or an object with the same methods."""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable
from typing import Protocol, runtime_checkable


class ByteStream(Protocol):
    """Carries bytes both ways; only the `wait`s wait, for so many milliseconds, None: for good.

    All raise OSError when it is lost.
    """

    def send(self, view: memoryview) -> int:
        """Take some bytes, which stay as they are until they are answered; how many, 0: none now."""
        ...

    def receive(self, view: memoryview) -> int | None:
        """Put some bytes that came into memory; how many, None: none now, 0: it has ended."""
        ...

    def wait_to_send(self, milliseconds: float | None) -> bool:
        """Wait until it takes something; whether it does, or is lost."""
        ...

    def wait_to_receive(self, milliseconds: float | None) -> bool:
        """Wait until something has come; whether something has, or it has ended."""
        ...

    def has_more(self) -> bool:
        """Whether something has come that was not taken, or it has ended."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...


@runtime_checkable
class PushReceiver(Protocol):
    """A way that hands over what comes on the thread on which it comes, without another one's help."""

    def pour(self, length: int, into: Callable[[memoryview], None]) -> None:
        """Have the next so many bytes handed over, in pieces that are valid for as long as it takes."""
        ...

    def wait_to_pour(self, milliseconds: float | None) -> bool:
        """Wait until more has been handed over; raises what doing so raised."""
        ...

    def has_poured(self) -> bool:
        """Whether all of it has been."""
        ...


class SocketStream:
    """A stream socket, or one with TLS."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket: socket.socket = connection
        self.is_tls: bool = isinstance(connection, ssl.SSLSocket)
        self._in, self._out = select.poll(), select.poll()
        self._in.register(connection, select.POLLIN)
        self._out.register(connection, select.POLLOUT)
        # Of TLS each way may have to wait for the other.
        self._sends = self._out
        self._receives = self._in

    def send(self, view: memoryview) -> int:
        """Take some bytes."""
        try:
            return self.socket.send(view)
        except (BlockingIOError, ssl.SSLWantWriteError):
            self._sends = self._out
        except ssl.SSLWantReadError:
            self._sends = self._in
        return 0

    def receive(self, view: memoryview) -> int | None:
        """Put some bytes into memory."""
        try:
            return self.socket.recv_into(view)
        except (BlockingIOError, ssl.SSLWantReadError):
            self._receives = self._in
        except ssl.SSLWantWriteError:
            self._receives = self._out
        return None

    def wait_to_send(self, milliseconds: float | None) -> bool:
        """Wait until it takes something."""
        return bool(self._sends.poll(milliseconds))

    def wait_to_receive(self, milliseconds: float | None) -> bool:
        """Wait until something has come."""
        return bool(self._receives.poll(milliseconds))

    def has_more(self) -> bool:
        """Whether something has come that was not taken, or the other end has hung up."""
        if isinstance(self.socket, ssl.SSLSocket) and self.socket.pending():
            return True
        return bool(self._in.poll(0))

    def close(self) -> None:
        """Hang up."""
        self.socket.close()
