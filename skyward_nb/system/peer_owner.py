"""The user at the other end of a TCP connection within this machine.

Linux lists both ends of each connection in `/proc/net/tcp` and `tcp6`, with the user of each: the one
who opened the socket. A user cannot take the address and port of another user's open connection.
Source: the kernel's Documentation/networking/proc_net_tcp.rst.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

_TABLES = Path("/proc/net/tcp"), Path("/proc/net/tcp6")
_LISTENS = "0A"
_V4_IN_V6 = "0" * 16 + f"{int.from_bytes(bytes((0, 0, 255, 255)), sys.byteorder):08X}"
_LOOK_AGAIN = 3

SocketName = tuple[str, int] | tuple[str, int, int, int]


def other_users(
    connections: Iterable[socket.socket], machines: Collection[str] = ()
) -> set[int | None]:
    """Whose accepted connections are not of this process's user: uids, None for one that is not known.

    Connections from `machines`, addresses, are left out. Raises OSError on a system without these tables.
    """
    unknown = list(connections)
    found: set[int | None] = set()
    for _ in range(_LOOK_AGAIN if unknown else 0):
        owners = _owners()
        for each in tuple(unknown):
            try:
                peer = each.getpeername()
                owner = owners.get((_place(peer), _place(each.getsockname())))
                # A table that changes while it is read may leave out a line.
                settled = (
                    owner is not None or str(plain_address(peer)) in machines or _has_ended(each)
                )
            except BlockingIOError:
                continue
            except OSError:
                owner, settled = None, True
            if settled:
                unknown.remove(each)
                found.update(() if owner is None else (owner,))
    return found.union({None} if unknown else ()) - {os.geteuid()}


def peer_uids(connections: Iterable[socket.socket]) -> list[int | None]:
    """The uid of the process at the other end of each connection, at one look.

    None where there is none within this machine: on another machine, or closed, or not accepted yet. Raises OSError on a
    system without these tables.
    """
    owners = _owners()
    found: list[int | None] = []
    for each in connections:
        owner = None
        with contextlib.suppress(OSError):  # it has ended
            owner = owners.get((_place(each.getpeername()), _place(each.getsockname())))
        found.append(owner)
    return found


def count_listeners(like: socket.socket) -> int:
    """The number of sockets that listen at this one's address."""
    own = _place(like.getsockname())
    return sum(_plain(local) == own and state == _LISTENS for local, _, state, _, _ in _rows())


def _owners() -> dict[tuple[str, str], int]:
    """The uid of each open socket by its ends, the other one's first."""
    return {
        (_plain(local), _plain(remote)): int(uid)
        for local, remote, _, uid, inode in _rows()
        # One that its process has closed is listed without an inode, and as root's.
        if inode != "0"
    }


def _has_ended(connection: socket.socket) -> bool:
    """Whether the other end has closed it, and left nothing to be read; raises OSError if not closed."""
    return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)


def _rows() -> Iterator[tuple[str, str, str, str, str]]:
    """Of each TCP socket: its own place, its peer's, its state, uid and inode."""
    for table in _TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except FileNotFoundError:
            if table is _TABLES[0]:
                raise
            continue  # no IPv6 here
        for line in lines:
            _, local, remote, state, _, _, _, uid, _, inode, *_ = line.split()
            yield local, remote, state, uid, inode


def plain_address(name: SocketName) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address of a socket's name, without its zone, as IPv4 has it where it is one of IPv4."""
    address = ipaddress.ip_address(name[0].partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


def _place(name: SocketName) -> str:
    """An address and port as the tables write them."""
    packed = plain_address(name).packed
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    text = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return f"{text}:{name[1]:04X}"


def _plain(place: str) -> str:
    """A place as IPv4 has it, also where a socket of IPv6 is there."""
    return place.removeprefix(_V4_IN_V6)
