"""The process of a relay: it takes connections of the pool's owner, and passes their bytes to the server.

It imports the standard library only, and starts in 20 ms.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Collection, Generator

from skyward_nb.plugins.connection_gate import admit
from skyward_nb.system.peer_owner import count_listeners, other_users

_CHUNK = 1 << 18
_START, _POLL = 120.0, 0.005
"""Seconds until the server listens, as frameworks take to join."""
_CONNECT = 30.0


def run(door: int, gate: int, control: int, server: str, machines: Collection[str]) -> None:
    """Relay until the other end of `control` is closed. The first three are descriptors."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    relay = Relay(socket.socket(fileno=gate), server, machines)
    accepts = socket.socket(fileno=door)
    threading.Thread(target=relay.accept_from, args=(accepts,), daemon=True).start()
    with socket.socket(fileno=control) as end:
        end.recv(1)
    os._exit(0)


class Relay:
    """Passes bytes between the pool's ranks and the server behind a gate, at an address of this machine.

    `machines` are the addresses of the pool's other machines.
    """

    def __init__(self, gate: socket.socket, server: str, machines: Collection[str]) -> None:
        self._gate = gate
        self._server = server, gate.getsockname()[1]
        self._machines = frozenset(machines)
        self._lock = threading.Lock()
        self._ports: list[int] = []
        """Bound by this process, so that no other one sends from them."""

    def accept_from(self, door: socket.socket) -> None:
        """Take connections until the socket is closed."""
        while True:
            try:
                client, _ = door.accept()
            except ConnectionAbortedError:
                continue
            except OSError:
                if door.fileno() < 0:
                    return
                time.sleep(_POLL)  # too many at once: some of them will end
                continue
            try:
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()
            except RuntimeError:
                client.close()

    def _serve(self, client: socket.socket) -> None:
        """Relay a connection to its end; one of another user is closed at once."""
        with client, contextlib.suppress(OSError):
            if not other_users([client], self._machines):
                self._await_server()
                self._relay(client)

    def _await_server(self) -> None:
        until = time.monotonic() + _START
        while count_listeners(self._gate) < 2 and time.monotonic() < until:
            time.sleep(_POLL)

    def _relay(self, client: socket.socket) -> None:
        with socket.socket() as onward:
            # Without SO_REUSEADDR: the port is nobody else's while this socket is open.
            onward.bind(("127.0.0.1", 0))
            port = onward.getsockname()[1]
            with self._passing(port):
                onward.settimeout(_CONNECT)
                onward.connect(self._server)
            onward.settimeout(None)
            for each in (client, onward):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=_pass, args=(onward, client), daemon=True)
            back.start()
            _pass(client, onward)
            back.join()

    @contextlib.contextmanager
    def _passing(self, port: int) -> Generator[None]:
        """Meanwhile, the gate lets connections from this port through."""
        try:
            with self._lock:
                self._ports.append(port)
                admit(self._gate, self._ports)
            yield
        finally:
            with self._lock:
                self._ports.remove(port)
                admit(self._gate, self._ports)


def _pass(source: socket.socket, target: socket.socket) -> None:
    """Pass bytes until the source ends, and that it did."""
    buffer = memoryview(bytearray(_CHUNK))
    try:
        while count := source.recv_into(buffer):
            target.sendall(buffer[:count])
        target.shutdown(socket.SHUT_WR)
    except OSError:
        # Cut at one end: the other end is cut, too.
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
