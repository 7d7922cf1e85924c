"""A port at which a framework's server listens and takes connections from its relay only.

Servers of frameworks ask nobody who connects. Sockets of one user may share a port (SO_REUSEPORT), and a
classic BPF program of theirs chooses the one that gets a connection. So a socket of this module, the first
to listen, gets all connections and drops every packet, but for those from ports of 127.0.0.1 that the
relay holds (`plugins/relay_process`): these go to the server. No other process can send from a port that
is bound. There is no moment without the program: the server begins to listen after it. Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import sys
from collections.abc import Iterable, Sequence

from skyward_nb.plugins.framework_sockets import listening_at

# Of Linux; Python has no names for them.
_ATTACH_FILTER = 26
_ATTACH_REUSEPORT_FILTER = 51

_LOAD_BYTE, _LOAD_HALF, _LOAD_WORD, _IF_EQUAL, _RETURN = 0x30, 0x28, 0x20, 0x15, 0x06
_IP_HEADER = 0xFFF00000
"""Where the header of IP begins; of packets of IPv4 without options, TCP's begins 20 bytes later."""
_SOURCE_ADDRESS, _SOURCE_PORT = _IP_HEADER + 12, _IP_HEADER + 20
_V4, _LOOPBACK = 0x45, 0x7F000001
_GATE, _SERVER = 0, 1
"""Sockets that share a port, in the order in which they began to listen."""
_BACKLOG = 1024
_MOST = 1000
"""Ports that a program passes, at most: what is connected already needs none."""

Step = tuple[int, int, int, int]
"""An instruction: its code, how far to jump if true and if false, its number."""


class UnsafeServer(RuntimeError):
    """A framework would take connections of other people; says why, and what to do."""


def shut(address: str = "", port: int = 0) -> socket.socket:
    """A gate: a server may now begin to listen here, if it sets SO_REUSEPORT, and no client reaches it.

    As long as the gate is open as a descriptor, in any process. `address` "" is all addresses; port 0 is a
    free one. Raises UnsafeServer where the kernel has no such programs, OSError where the port is taken.
    """
    if sys.platform != "linux":
        raise UnsafeServer(_not_shut("this system has no filters for sockets"))
    gate, place = _like_a_server(address)
    try:
        gate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        gate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        _limit(gate, _ATTACH_FILTER, [(_RETURN, 0, 0, 0)])
        gate.bind((place, port))
        # Before the program: with one, a socket may not begin to listen beside another one.
        gate.listen(1)
        _limit(gate, _ATTACH_REUSEPORT_FILTER, program(()))
    except BaseException:
        gate.close()
        raise
    return gate


def server_behind(gate: socket.socket) -> socket.socket:
    """A socket that listens behind the gate."""
    server = socket.socket(gate.family)
    try:
        if gate.family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(gate.getsockname())
        server.listen(_BACKLOG)
    except BaseException:
        server.close()
        raise
    return server


def check(gate: socket.socket) -> None:
    """Raise UnsafeServer unless this process has a server behind the gate, and none beside it."""
    own = os.fstat(gate.fileno()).st_ino
    found: list[bool] = []
    for each in listening_at(gate.getsockname()[1]):
        with each:
            if os.fstat(each.fileno()).st_ino != own:
                found.append(each.family == gate.family)
    if not found or not all(found):
        raise UnsafeServer(_not_shut("its socket was not found"))


def admit(gate: socket.socket, ports: Sequence[int]) -> None:
    """Have connections from these ports of 127.0.0.1, of the last of them, go to the server."""
    _attach(gate, _ATTACH_REUSEPORT_FILTER, program(ports[-_MOST:]))


def _not_shut(why: str | None) -> str:
    return (
        "the framework's server takes anybody's connections, and the kernel does not limit them "
        f"({why}), so it is not started"
    )


def _like_a_server(address: str) -> tuple[socket.socket, str]:
    """A socket of the family that gRPC takes, which must be the same to share a port; its address."""
    with contextlib.suppress(OSError):
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        both = socket.socket(socket.AF_INET6)
        both.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        return both, f"::ffff:{address}" if address else "::"
    return socket.socket(socket.AF_INET), address


def program(ports: Iterable[int]) -> list[Step]:
    """Which socket gets a packet: the server those from these ports of 127.0.0.1, the gate all others."""
    gate = (_RETURN, 0, 0, _GATE)
    steps: list[Step] = [
        (_LOAD_BYTE, 0, 0, _IP_HEADER),
        (_IF_EQUAL, 1, 0, _V4),
        gate,
        (_LOAD_WORD, 0, 0, _SOURCE_ADDRESS),
        (_IF_EQUAL, 1, 0, _LOOPBACK),
        gate,
        (_LOAD_HALF, 0, 0, _SOURCE_PORT),
    ]
    for port in ports:
        steps += [(_IF_EQUAL, 0, 1, port), (_RETURN, 0, 0, _SERVER)]
    return [*steps, gate]


def _limit(gate: socket.socket, option: int, steps: list[Step]) -> None:
    try:
        _attach(gate, option, steps)
    except OSError as error:
        raise UnsafeServer(_not_shut(error.strerror)) from error


def _attach(to: socket.socket, option: int, steps: list[Step]) -> None:
    """Give the kernel a program: how many instructions it has, and where they are."""
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    held = ctypes.create_string_buffer(code, len(code))
    to.setsockopt(socket.SOL_SOCKET, option, struct.pack("HP", len(steps), ctypes.addressof(held)))
