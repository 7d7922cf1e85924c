"""A framework's connections in this process: known by when they were opened, and cut at once.

Frameworks keep their sockets in native code, so they are found in `/proc/self/fd` (Linux; elsewhere
there are none). What user code connected itself is another's, and is left alone.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from skyward_nb.system.peer_owner import peer_uids

R = TypeVar("R")

# As text: a path of each would take longer than the look.
_DESCRIPTORS = "/proc/self/fd/"
_SOCKET = "socket:["
_PROXIES = "grpc_proxy", "https_proxy", "http_proxy"
_DIRECT = "no_grpc_proxy"
"""Hosts that gRPC asks no proxy for; that it reads this first is its own."""


class FrameworkSockets:
    """The sockets of one framework; `cut` may be called from any thread."""

    def __init__(self) -> None:
        self._own: set[int] = set()
        self._listening: set[int] = set()
        """Torch has gloo listen at the same ports when a group goes on in another generation."""
        self._seen: set[int] = set()
        """Connections of which the other end is this user's, and stays so."""
        self._before: set[int] | None = None
        self._port = 0

    def forget(self, port: int = 0) -> None:
        """Begin anew, with a store that is reached, or listens, at `port`."""
        self._own = set()
        self._before = None
        self._port = port

    def during(self, make: Callable[[], R]) -> R:
        """Call this: what is opened meanwhile is the framework's.

        What other users of this machine have connected to it is cut before this returns: frameworks ask nobody
        who connects, and so may have taken such a process for another rank.
        """
        if self._before is not None:
            return make()
        self._before = before = set(_sockets())
        made, now = False, dict[int, int]()
        try:
            result = make()
            made = True
        finally:
            # Without a call that an interrupt could come upon: it has waited until here.
            self._before = None
            if made:
                now = _sockets()
                self._own = (self._own & now.keys()) | (now.keys() - before)
        self._cut_other_users(now)
        return result

    def cut(self) -> bool:
        """Shut the connections down, which wakes their waiting threads; whether there were any.

        A socket that listens is left as it is: frameworks abort the process when theirs fails.
        """
        before = self._before
        found = _sockets()
        opening = set(found) - before if before is not None else set[int]()
        ports = self._ports(found, opening) | ({self._port} - {0})
        connected = self._connections(found, opening)
        return sum(_shut(each, ports, known=known) for _, known, each in connected) > 0

    def cut_other_users(self) -> None:
        """Cut what other users of this machine have connected to it."""
        self._cut_other_users(_sockets())

    def _cut_other_users(self, found: dict[int, int]) -> None:
        ports = self._ports(found)
        with contextlib.ExitStack() as opened:
            own = set[int]()
            new = dict[int, socket.socket]()
            for inode, known, each in self._connections(found):
                if known or _has_port(each, ports):
                    own.add(inode)
                    if inode not in self._seen:
                        with contextlib.suppress(OSError):
                            # Not by `dup`, which would have the framework's wait.
                            new[inode] = opened.enter_context(_duplicate(inode, each.fileno()))
            self._seen &= own
            # Where there are no such tables, the machine is taken to be the owner's alone.
            with contextlib.suppress(OSError):
                uids = peer_uids(new.values()) if new else ()
                for (inode, each), uid in zip(new.items(), uids, strict=True):
                    if uid == os.geteuid():
                        self._seen.add(inode)
                    elif uid is not None:
                        _shut(each, ports, known=True)

    def _ports(self, found: dict[int, int], opening: Collection[int] = ()) -> set[int]:
        """Ports at which the framework listens."""
        ports: set[int] = set()
        listening: set[int] = set()
        for inode, known, each in self._each(found, opening):
            if known and _listens(each):
                ports.add(each.getsockname()[1])
                listening.add(inode)
        self._listening = listening
        return ports

    def _connections(
        self, found: dict[int, int], opening: Collection[int] = ()
    ) -> Iterator[tuple[int, bool, socket.socket]]:
        """Connections of this process: the number of each, and whether it is the framework's."""
        return (each for each in self._each(found, opening) if not _listens(each[2]))

    def _each(
        self, found: dict[int, int], opening: Collection[int]
    ) -> Iterator[tuple[int, bool, socket.socket]]:
        """Internet sockets of this process, one open at a time: of many, as many duplicates may not be had."""
        for inode, descriptor in found.items():
            known = inode in self._own or inode in opening or inode in self._listening
            with contextlib.suppress(OSError), _duplicate(inode, descriptor) as each:
                if each.family in (socket.AF_INET, socket.AF_INET6):
                    yield inode, known, each


def listening_at(port: int) -> list[socket.socket]:
    """Listening sockets of this process at a port, from any library; duplicates, to be closed."""
    found: list[socket.socket] = []
    for inode, descriptor in _sockets().items():
        with contextlib.suppress(OSError):
            each = _duplicate(inode, descriptor)
            if _listens(each) and each.getsockname()[1] == port:
                found.append(each)
            else:
                each.close()
    return found


def _listens(each: socket.socket) -> bool:
    inet = each.family in (socket.AF_INET, socket.AF_INET6)
    return inet and bool(each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _duplicate(inode: int, descriptor: int) -> socket.socket:
    """A socket through a duplicate descriptor; OSError if that one is another's, or a file's, by now.

    Native threads close theirs at any time, and the next that is opened takes the number.
    """
    duplicate = os.dup(descriptor)
    try:
        if os.fstat(duplicate).st_ino != inode:
            raise OSError("the descriptor is another's by now")
        return socket.socket(fileno=duplicate)
    except OSError:
        os.close(duplicate)
        raise


def _has_port(each: socket.socket, ports: Collection[int]) -> bool:
    with contextlib.suppress(OSError):
        return each.getsockname()[1] in ports
    return False


def _shut(each: socket.socket, ports: set[int], *, known: bool) -> bool:
    """Shut a connection that is `known`, or has one of these ports at either end."""
    with contextlib.suppress(OSError):
        # First: one that is bound and not yet connected would be spoilt for listening.
        peer = each.getpeername()[1]
        if known or peer in ports or each.getsockname()[1] in ports:
            each.shutdown(socket.SHUT_RDWR)
            return True
    return False


def _sockets() -> dict[int, int]:
    """This process's sockets: the number of each, and a descriptor of it."""
    found: dict[int, int] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208 - as text
            with contextlib.suppress(OSError):
                target = os.readlink(_DESCRIPTORS + name)  # noqa: PTH115 - as text
                if target.startswith(_SOCKET):
                    found[int(target[len(_SOCKET) : -1])] = int(name)
    return found


def past_proxies(peers: Iterable[str]) -> None:
    """Have gRPC reach peers directly where there is a proxy, which it would ask for loopback, too.

    For good: it connects again whenever a line is lost.
    """
    if any(os.environ.get(name) for name in _PROXIES):
        direct = (os.environ.get(_DIRECT) or os.environ.get("no_proxy") or "").split(",")
        os.environ[_DIRECT] = ",".join(dict.fromkeys(filter(None, (*direct, *peers))))


def await_listener(address: str, port: int, seconds: float) -> None:
    """Wait until a socket listens there: frameworks, when refused, pause for up to a second."""
    _await(lambda: socket.create_connection((address, port), seconds).close(), seconds)


def await_socket(path: Path, seconds: float) -> None:
    """Wait until a socket of this machine listens at a path."""

    def connect() -> None:
        with socket.socket(socket.AF_UNIX) as trial:
            trial.connect(os.fspath(path))

    _await(connect, seconds)


def _await(connect: Callable[[], None], seconds: float) -> None:
    until = time.monotonic() + seconds
    pause = 0.001
    while time.monotonic() < until:
        try:
            connect()
        except (ConnectionRefusedError, FileNotFoundError):
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        except OSError:
            return  # the framework says it better
        else:
            return
