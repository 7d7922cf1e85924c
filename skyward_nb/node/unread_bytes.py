"""How much of what was sent waits to be read, as the system counts it: unix(7), tty_ioctl(4)."""

from __future__ import annotations

import array
import fcntl
import termios
from typing import Protocol


class _Descriptor(Protocol):
    def fileno(self) -> int: ...


def unread_there(connection: _Descriptor) -> int | None:
    """Bytes that the other end has not read yet; None where the system does not tell."""
    return _count(connection, termios.TIOCOUTQ)


def unread_here(connection: _Descriptor) -> int | None:
    """Bytes that a read would find now; None where the system does not tell."""
    return _count(connection, termios.FIONREAD)


def _count(connection: _Descriptor, which: int) -> int | None:
    count = array.array("i", [0])
    try:
        fcntl.ioctl(connection, which, count)
    except OSError:
        return None
    return count[0]
