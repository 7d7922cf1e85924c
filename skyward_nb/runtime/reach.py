"""Whether ranks reach one another by TCP, how long there and back, and how much it carries.

Each rank listens on its node's own address, on no other, for as long as a check goes on and for a
minute at most. Who connects first says a word that was drawn for this check; nothing is read that
could be anything but a count of bytes.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable

from skyward_nb.runtime.instance import instance_info
from skyward_nb.system.addresses import family_of
from skyward_nb.system.second_look import SecondLook
from skyward_nb.words.findings import PathSpeed, ReachResult

_LIFE = 60.0
_PATIENCE, _STEP = 3.0, 0.1
_TRIPS = 3
_MOST_TRIPS = 100
_CHUNK = 1 << 20
WORD = 16
_PING, _DATA = b"p", b"d"

Address = tuple[int, str, int]
"""A rank, and where it listens."""


class ProbeListener:
    """Answers clients that know the word, each on a thread of its own."""

    def __init__(self, rank: int, host: str, word: bytes) -> None:
        self._rank = rank
        self._word = word
        self._socket = socket.create_server((host, 0), family=family_of(host), backlog=1024)
        self.port: int = self._socket.getsockname()[1]
        self._until = time.monotonic() + _LIFE
        self._closed = False
        self._thread = _thread(self._serve)

    def close(self) -> None:
        """Listen no more."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join(_PATIENCE)

    def _serve(self) -> None:
        with self._socket:
            while not self._closed and (left := self._until - time.monotonic()) > 0:
                self._socket.settimeout(left)
                try:
                    connection, _ = self._socket.accept()
                except OSError:
                    return
                _thread(self._answer, connection)

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(_LIFE)  # who asks may be held up
            self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not hmac.compare_digest(_exactly(connection, WORD), self._word):
            return
        connection.sendall(self._rank.to_bytes(4, "big"))
        while (asked := connection.recv(1)) == _PING:
            connection.sendall(_PING)
        if asked == _DATA:
            count = 0
            space = bytearray(_CHUNK)
            while some := connection.recv_into(space):
                count += some
            connection.sendall(count.to_bytes(8, "big"))


def _thread(target: Callable[..., None], *args: object) -> threading.Thread:
    def run() -> None:
        # Signals are the main thread's, which sleeps on if another one takes them.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        target(*args)

    thread = threading.Thread(target=run, name="skyward-check", daemon=True)
    thread.start()
    return thread


_listener: ProbeListener | None = None


def listen(rank: int, host: str, word: bytes) -> int:
    """Listen from now on; the port."""
    global _listener
    close()
    _listener = ProbeListener(rank, host, word)
    return _listener.port


def close() -> None:
    """Listen no more."""
    global _listener
    if _listener is not None:
        _listener.close()
        _listener = None


# ── all others at once ──────────────────────────────────────────────────────────────────


class _Try:
    """One connection on its way: it sends the word, reads the answering rank, and measures a round trip."""

    def __init__(self, address: Address, word: bytes) -> None:
        self.rank, self._host, self._port = address
        self._word = word
        self._heard = b""
        self._trips = 0
        self._sent = 0.0
        self._best = float("inf")
        self.socket = socket.socket(family_of(self._host))
        self.socket.setblocking(False)

    def begin(self) -> ReachResult | None:
        """Connect; the result, if it is known at once."""
        code = self.socket.connect_ex((self._host, self._port))
        return None if code in (0, errno.EINPROGRESS) else self.failed(os.strerror(code))

    def connected(self) -> ReachResult | None:
        """The socket can be written to: it is connected, or never will be. Raises OSError."""
        if code := self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            return self.failed(os.strerror(code))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.send(self._word)
        return None

    def heard(self) -> ReachResult | None:
        """The socket has something to read. Raises OSError."""
        data = self.socket.recv(64)
        if not data:
            return self.failed("something else answered there")
        self._heard += data
        if len(self._heard) < 4:
            return None
        if self._sent:
            self._best = min(self._best, time.perf_counter() - self._sent)
            self._trips += 1
        elif int.from_bytes(self._heard[:4], "big") != self.rank:
            return self.failed("another rank answered there")
        if self._trips == _TRIPS:
            return ReachResult(self.rank, self._best)
        self._sent = time.perf_counter()
        self.socket.send(_PING)
        return None

    def failed(self, why: str) -> ReachResult:
        """It came to nothing."""
        return ReachResult(self.rank, trouble=why[:1].lower() + why[1:])


def reach_others(everyone: Iterable[Address], word: bytes) -> list[ReachResult]:
    """The report on this rank's connections to all others of a pool."""
    own = instance_info().pool_rank
    return reach([each for each in everyone if each[0] != own], word)


def reach(others: Iterable[Address], word: bytes, patience: float = _PATIENCE) -> list[ReachResult]:
    """Connect to each of `others` at the same time; the result for each, in their order."""
    tries = [_Try(address, word) for address in others]
    found: dict[int, ReachResult] = {}
    try:
        with SecondLook() as selector:
            for each in tries:
                if (known := each.begin()) is not None:
                    found[each.rank] = known
                else:
                    selector.register(each.socket, selectors.EVENT_WRITE, each)
            left = patience
            while len(found) < len(tries) and left > 0:
                began = time.monotonic()
                for key, events in selector.select(min(left, _STEP)):
                    _go_on(selector, key.data, found, is_connected=events & selectors.EVENT_WRITE)
                # Answers may have come while this process had no processor: that time does not count.
                left -= min(time.monotonic() - began, _STEP)
    finally:
        for each in tries:
            each.socket.close()
    late = f"no answer in {patience:g} s"
    return [found.get(each.rank) or ReachResult(each.rank, trouble=late) for each in tries]


def _go_on(
    selector: selectors.BaseSelector,
    each: _Try,
    found: dict[int, ReachResult],
    *,
    is_connected: int,
) -> None:
    try:
        known = each.connected() if is_connected else each.heard()
    except OSError as error:  # the other end has hung up since
        known = each.failed(error.strerror or str(error))
    if known is not None:
        found[each.rank] = known
        selector.unregister(each.socket)
        each.socket.close()
    elif is_connected:
        selector.modify(each.socket, selectors.EVENT_READ, each)


# ── one of them alone ───────────────────────────────────────────────────────────────────


def link(other: Address, word: bytes, seconds: float = 0.4) -> PathSpeed:
    """The throughput of one connection to another rank, measured for so many seconds.

    Raises OSError where it fails.
    """
    _, host, port = other
    with socket.create_connection((host, port), _PATIENCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(word)
        _exactly(connection, 4)
        trips = _round_trips(connection, seconds)
        connection.sendall(_DATA)
        chunk = bytes(_CHUNK)
        began = time.perf_counter()
        # One at least, even if this process was stopped meanwhile.
        connection.sendall(chunk)
        while time.perf_counter() - began < seconds:
            connection.sendall(chunk)
        connection.shutdown(socket.SHUT_WR)
        count = int.from_bytes(_exactly(connection, 8), "big")
        return PathSpeed(sorted(trips)[len(trips) // 2], count / (time.perf_counter() - began))


def _round_trips(connection: socket.socket, seconds: float) -> list[float]:
    found: list[float] = []
    until = time.perf_counter() + seconds
    # One at least, even if this process was stopped meanwhile.
    while not found or (len(found) < _MOST_TRIPS and time.perf_counter() < until):
        began = time.perf_counter()
        connection.sendall(_PING)
        _exactly(connection, 1)
        found.append(time.perf_counter() - began)
    return found


def _exactly(connection: socket.socket, count: int) -> bytes:
    """So many bytes; raises OSError where the other end hangs up before."""
    data = b""
    while len(data) < count:
        some = connection.recv(count - len(data))
        if not some:
            raise ConnectionError("the other end hung up")
        data += some
    return data
