"""Who may connect to a server that listens on every address and asks nobody who they are.

The kernel answers for it: a filter on each listening socket, and on what it accepts, drops whatever
does not come from the pool's own machines (Linux). So that there is no moment without one, a socket
of ours listens at the port first, which drops everything. The server shares the port with it, by
SO_REUSEPORT, and gets what the filter lets pass.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import struct
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address

from skyward_nb.plugins.framework_sockets import listening_at

# Of Linux; Python has no names for them.
_ATTACH_FILTER = 26
_ATTACH_REUSEPORT_FILTER = 51

_LOAD_BYTE, _LOAD_WORD, _AND, _SHIFT = 0x30, 0x20, 0x54, 0x74
_IF_EQUAL, _GO, _RETURN = 0x15, 0x05, 0x06
_IP_HEADER = 0xFFF00000
"""Where the header of IP begins, for a filter that otherwise sees TCP's."""
_V4_SOURCE, _V6_SOURCE = 12, 8
_LOOPBACK, _LOOPBACK_MASK = 0x7F000000, 0xFF000000
_ALL, _NONE = 0xFFFFFFFF, 0
_OURS, _THEIRS = 0, 1
"""Sockets that share a port, in the order in which they began to listen."""

Address = IPv4Address | IPv6Address
Step = tuple[int, int, int, int]
"""An instruction of a filter: its code, how far to jump if true and if false, its number."""


@contextmanager
def gate(port: int, peers: Iterable[str]) -> Generator[None]:
    """Inside, a server may begin to listen at `port` on all addresses, if it sets SO_REUSEPORT.

    Nobody but `peers`, addresses or names, and this machine's loopback, reaches it, now and later.
    Raises RuntimeError where that cannot be had, or the server was not to be found.
    """
    addresses = _addresses(peers)
    try:
        ours = _doorkeeper(port, addresses)
    except OSError as error:
        raise RuntimeError(_no_gate(error)) from error
    with ours:
        yield
        try:
            found = [each.family for each in listening_at(port) if _keep(each, ours, addresses)]
        except OSError as error:
            raise RuntimeError(_no_gate(error)) from error
    if not found or any(family != ours.family for family in found):
        raise RuntimeError(_no_gate(OSError(errno.ENOTSOCK, "its socket was not found")))


def _keep(theirs: socket.socket, ours: socket.socket, addresses: list[Address]) -> bool:
    """Put the filter on a listening socket, which keeps it for good; whether it is not our own."""
    with theirs:
        if os.fstat(theirs.fileno()).st_ino == os.fstat(ours.fileno()).st_ino:
            return False
        _attach(theirs, _ATTACH_FILTER, program(addresses, _ALL, _NONE))
        return True


def _no_gate(error: OSError) -> str:
    return (
        "TensorFlow's server accepts connections from anywhere, and could not be limited to the "
        f"pool's machines ({error.strerror or error}), so it is not started"
    )


def _addresses(peers: Iterable[str]) -> list[Address]:
    """Every address that these have, and of this machine what is loopback."""
    found: dict[Address, None] = {IPv6Address("::1"): None}
    for peer in dict.fromkeys(peers):
        for *_, place in socket.getaddrinfo(peer, None, type=socket.SOCK_STREAM):
            found[ip_address(str(place[0]).partition("%")[0])] = None
    return list(found)


def _doorkeeper(port: int, addresses: list[Address]) -> socket.socket:
    """A socket that listens at the port and lets nobody in, and sends on whom the filter lets pass."""
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "this system has no filters for sockets")
    ours, everywhere = _like_a_server()
    try:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        _attach(ours, _ATTACH_FILTER, _assembled([(_RETURN, 0, 0, _NONE)]))
        ours.bind((everywhere, port))
        _attach(ours, _ATTACH_REUSEPORT_FILTER, program(addresses, _THEIRS, _OURS))
        ours.listen(1)
    except BaseException:
        ours.close()
        raise
    return ours


def _like_a_server() -> tuple[socket.socket, str]:
    """A socket of the family that gRPC takes, which must be the same to share a port; its address."""
    with contextlib.suppress(OSError):
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        both = socket.socket(socket.AF_INET6)
        both.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        return both, "::"
    return socket.socket(socket.AF_INET), "0.0.0.0"  # noqa: S104 - it drops everything


def program(addresses: Iterable[Address], others: int, none: int) -> bytes:
    """A classic BPF filter that returns `others` for packets of loopback and these addresses, else `none`."""
    every = list(addresses)
    v4 = _for_v4([each for each in every if isinstance(each, IPv4Address)], others, none)
    v6 = _for_v6([each for each in every if isinstance(each, IPv6Address)], others, none)
    version: list[Step] = [
        (_LOAD_BYTE, 0, 0, _IP_HEADER),
        (_SHIFT, 0, 0, 4),
        (_IF_EQUAL, 1, 0, 4),
        (_GO, 0, 0, len(v4)),
    ]
    return _assembled([*version, *v4, *v6])


def _for_v4(addresses: list[IPv4Address], passes: int, fails: int) -> list[Step]:
    steps: list[Step] = [(_LOAD_WORD, 0, 0, _IP_HEADER + _V4_SOURCE)]
    for each in addresses:
        steps += [(_IF_EQUAL, 0, 1, int(each)), (_RETURN, 0, 0, passes)]
    return [
        *steps,
        (_AND, 0, 0, _LOOPBACK_MASK),
        (_IF_EQUAL, 0, 1, _LOOPBACK),
        (_RETURN, 0, 0, passes),
        (_RETURN, 0, 0, fails),
    ]


def _for_v6(addresses: list[IPv6Address], passes: int, fails: int) -> list[Step]:
    steps: list[Step] = []
    for each in addresses:
        for number, word in enumerate(struct.unpack("!4I", each.packed)):
            steps.append((_LOAD_WORD, 0, 0, _IP_HEADER + _V6_SOURCE + 4 * number))
            steps.append((_IF_EQUAL, 0, 2 * (3 - number) + 1, word))
        steps.append((_RETURN, 0, 0, passes))
    return [*steps, (_RETURN, 0, 0, fails)]


def _assembled(steps: Iterable[Step]) -> bytes:
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _attach(to: socket.socket, option: int, code: bytes) -> None:
    """Give the kernel a filter: how many instructions it has, and where they are."""
    held = ctypes.create_string_buffer(code, len(code))
    where = struct.pack("HP", len(code) // 8, ctypes.addressof(held))
    to.setsockopt(socket.SOL_SOCKET, option, where)
