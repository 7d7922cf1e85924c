"""Connections with other agents of the same pool, for values.

Only peers with the pool's key are accepted, and only at private addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from skyward_nb.node.endpoints import own_addresses
from skyward_nb.store.pool_key import MutualTLS
from skyward_nb.store.remote_store import RemoteStore
from skyward_nb.store.value_messages import (
    ANSWERS,
    Address,
    AdmitPeers,
    Done,
    IdentifyMachine,
    SpreadBranch,
)
from skyward_nb.store.value_stream import ValueStream
from skyward_nb.system.addresses import family_of, is_private
from skyward_nb.system.concurrency import run_concurrently
from skyward_nb.system.connections import tune

_CONNECT_TIMEOUT = 4.0
"""Seconds in which an address answers, or is none."""
_PATIENCE = 4.0


class PeerAgents:
    """Connections with the agents of other machines; `serve` gets each incoming one, in a thread of its own."""

    def __init__(self, folder: Path, serve: Callable[[socket.socket], None]) -> None:
        self._folder = folder
        self._serve = serve
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tls: MutualTLS | None = None
        self._listeners: list[socket.socket] = []
        self.name: str = ""

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the loop that accepts connections."""
        self._loop = loop

    def meet(self, ask: AdmitPeers) -> tuple[Address, ...]:
        """Accept peers with this key from now on, and no others; the addresses to reach this machine."""
        with self._lock:
            self.close()
            self.name = ask.name
            self._tls = MutualTLS(ask.key, self._folder, ask.other)
            self._listeners = private_listeners(ask.hosts)
            for listener in self._listeners:
                self._soon(self._listen, listener)
            found = [listener.getsockname() for listener in self._listeners]
        return tuple((host, port) for host, port, *_ in found)

    def close(self) -> None:
        """Accept no more connections."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            self._soon(self._unlisten, listener)

    def _soon(self, call: Callable[[socket.socket], None], listener: socket.socket) -> None:
        if self._loop is None or self._loop.is_closed():
            listener.close()
            return
        self._loop.call_soon_threadsafe(call, listener)

    def _listen(self, listener: socket.socket) -> None:
        assert self._loop is not None
        self._loop.add_reader(listener, serve_next, listener, self._welcome)

    def _unlisten(self, listener: socket.socket) -> None:
        assert self._loop is not None
        self._loop.remove_reader(listener)
        listener.close()

    def _welcome(self, connection: socket.socket) -> None:
        tls = self._tls
        try:
            connection.settimeout(_CONNECT_TIMEOUT)
            assert tls is not None
            stream = tls.welcome(connection)
        except OSError:
            connection.close()
            return
        self._serve(stream)

    def spread(
        self,
        digest: str,
        source: ValueRelay,
        branches: tuple[SpreadBranch, ...],
        tick: Callable[[], None],
    ) -> dict[str, str]:
        """Send a value to other machines, as it comes; those that did not get it, and why.

        If a machine cannot be reached, those behind it get the value from here.
        """
        lacking: dict[str, str] = {}

        def give(branch: SpreadBranch, tick: Callable[[], None]) -> None:
            store = RemoteStore(lambda: self._opened(branch), _PATIENCE, branch.name)
            try:
                lacking.update(store.pass_on(digest, source, branch.branches, tick))
            except OSError as error:
                lacking[branch.name] = error.strerror or str(error)
                lacking.update(self.spread(digest, source, branch.branches, tick))
            finally:
                store.close()

        run_concurrently([(lambda tick, b=branch: give(b, tick)) for branch in branches], tick)
        return lacking

    def _opened(self, branch: SpreadBranch) -> socket.socket:
        """A stream to a machine, at whichever of its addresses answers first; raises OSError."""
        if not branch.addresses:
            raise OSError(errno.EHOSTUNREACH, f"{branch.name} has no address")
        race = _Race(len(branch.addresses))
        for address in branch.addresses:
            threading.Thread(
                target=self._connect, args=(address, branch.name, race), daemon=True
            ).start()
        return race.won()

    def _connect(self, address: Address, name: str, race: _Race) -> None:
        stream: socket.socket | None = None
        try:
            assert self._tls is not None
            stream = socket.create_connection(address, _CONNECT_TIMEOUT)
            tune(stream)
            stream = self._tls.enter(stream)
            _check(stream, name)
        except OSError as error:
            if stream is not None:
                stream.close()
            race.lost(error)
        else:
            race.arrived(stream)


class _Race:
    """Several tries, of which the first that succeeds is taken."""

    def __init__(self, many: int) -> None:
        self._changed = threading.Condition()
        self._left = many
        self._first: socket.socket | None = None
        self._error = OSError(errno.EHOSTUNREACH, "nobody is there")

    def arrived(self, stream: socket.socket) -> None:
        with self._changed:
            if self._first is None:
                self._first = stream
                self._changed.notify_all()
                return
        stream.close()

    def lost(self, error: OSError) -> None:
        with self._changed:
            self._left -= 1
            self._error = error
            self._changed.notify_all()

    def won(self) -> socket.socket:
        with self._changed:
            while self._first is None and self._left:
                self._changed.wait()
            if self._first is None:
                raise self._error
            return self._first


def _check(connection: socket.socket, name: str) -> None:
    """Make sure that it is this machine that was reached; raises OSError."""
    until = time.monotonic() + _CONNECT_TIMEOUT

    def tick() -> None:
        if time.monotonic() > until:
            raise TimeoutError(f"{name} does not answer")

    stream = ValueStream(connection, ANSWERS)
    stream.tick = tick
    stream.say(IdentifyMachine(name))
    if not isinstance(stream.hear(), Done):
        raise OSError(errno.EHOSTUNREACH, f"it is not {name} that was reached")


class ValueRelay:
    """A value that is passed on while it comes; `wait` waits until some bytes of it are there."""

    def __init__(
        self, handle: int, size: int, wait: Callable[[int, int, Callable[[], None]], None]
    ) -> None:
        self._handle = handle
        self._wait = wait
        self.size = size

    def views(self, start: int, stop: int, tick: Callable[[], None]) -> Iterator[memoryview]:
        """The bytes from `start` to before `stop`; raises OSError where they never come."""
        for at in range(start, stop, _STEP):
            end = min(stop, at + _STEP)
            self._wait(at, end, tick)
            yield memoryview(os.pread(self._handle, end - at, at))


_STEP = 1 << 20


def serve_next(listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    """Accept a connection, and serve it in a thread of its own."""
    with contextlib.suppress(OSError):
        connection, _ = listener.accept()
        threading.Thread(
            target=serve, args=(connection,), name="skyward-values", daemon=True
        ).start()


def private_listeners(hosts: Sequence[str] = ()) -> list[socket.socket]:
    """Listeners at those of these addresses that are private; without `hosts`, at all of this machine's."""
    own = own_addresses(loopback=False) or own_addresses(loopback=True)
    found: list[socket.socket] = []
    for host in filter(is_private, hosts or [address for address, _ in own]):
        with contextlib.suppress(OSError):  # it is gone just now, or not up yet
            found.append(_listener(host))
    return found


def _listener(host: str) -> socket.socket:
    listener = socket.create_server((host, 0), family=family_of(host), backlog=64)
    listener.setblocking(False)
    return listener
