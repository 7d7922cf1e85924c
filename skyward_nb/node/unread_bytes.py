"""The number of sent bytes that wait to be read, as the system counts them: unix(7), tty_ioctl(4)."""

from __future__ import annotations

import array
import fcntl
import termios

HERE, THERE = termios.FIONREAD, termios.TIOCOUTQ


def unread_bytes(descriptor: int, end: int) -> int | None:
    """Bytes that this end (`HERE`) or the other one (`THERE`) has yet to read; None if the system does not tell."""
    count = array.array("i", [0])
    try:
        fcntl.ioctl(descriptor, end, count)
    except OSError:
        return None
    return count[0]
