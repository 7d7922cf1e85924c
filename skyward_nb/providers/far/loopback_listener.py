"""The program that listens at a port of a machine's loopback for the other end of its stdio.

It is sent as text, to whatever Python 3.6 or newer a machine has, and imports nothing of this package. Both ways there
are frames: the number of a connection, a length, and so many bytes; a frame without bytes is that side's last one.
Number 0 has the port, as text, at the beginning. It ends when its stdin does.
"""

from __future__ import annotations

import os
import queue
import socket
import struct
import threading

HEAD = struct.Struct(">II")
_PIECE = 1 << 16
_MOST = 1 << 10
"""Pieces that wait for the reader of one connection before the others wait, too."""
_lock = threading.Lock()


def _say(number: int, data: bytes) -> None:
    frame = memoryview(HEAD.pack(number, len(data)) + data)
    with _lock:
        while frame:
            frame = frame[os.write(1, frame) :]


class Accepted:
    """A connection that was accepted here, and what comes for it."""

    def __init__(self, number: int, connection: socket.socket) -> None:
        self.coming: queue.Queue[bytes] = queue.Queue(_MOST)
        self._number = number
        self._connection = connection

    def begin(self) -> None:
        """Carry bytes both ways, in threads."""
        for work in (self._deliver, self._carry):
            threading.Thread(target=work, daemon=True).start()

    def _carry(self) -> None:
        data = b"-"
        while data:
            try:
                data = self._connection.recv(_PIECE)
            except OSError:
                data = b""
            _say(self._number, data)

    def _deliver(self) -> None:
        data = self.coming.get()
        try:
            while data:
                self._connection.sendall(data)
                data = self.coming.get()
            self._connection.shutdown(socket.SHUT_WR)
        except OSError:
            # Nobody reads it any more.
            while data:
                data = self.coming.get()


def _whole(length: int) -> bytes:
    """So many bytes of stdin; the program ends with stdin."""
    data = b""
    while len(data) < length:
        more = os.read(0, length - len(data))
        if not more:
            os._exit(0)
        data += more
    return data


def main() -> None:
    """Listen, and carry bytes of each connection."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    accepted: dict[int, Accepted] = {}

    def accept() -> None:
        number = 0
        while True:
            connection, _ = listener.accept()
            number += 1
            # It may be answered as soon as it has begun.
            accepted[number] = new = Accepted(number, connection)
            new.begin()

    _say(0, str(listener.getsockname()[1]).encode())
    threading.Thread(target=accept, daemon=True).start()
    while True:
        number, length = HEAD.unpack(_whole(HEAD.size))
        data = _whole(length)
        if number in accepted:
            accepted[number].coming.put(data)
        if not data:
            accepted.pop(number, None)


if __name__ == "__main__":
    main()
