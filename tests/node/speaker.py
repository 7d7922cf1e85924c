"""A rank alone: it says things by its uplink and writes others to its pipe, in one of these ways.

`python speaker.py WAY TIMES SOCKET PIPE`, of which the last are descriptors. It ends with "end".
"""

from __future__ import annotations

import os
import socket
import sys

from skyward_nb.node.uplink import Uplink


def flushes(uplink: Uplink, pipe: int, i: int) -> None:
    uplink.write("stdout", f"A {i}\n")
    uplink.settle()
    os.write(pipe, f"B {i}\n".encode())


def writes_first(uplink: Uplink, pipe: int, i: int) -> None:
    os.write(pipe, f"A {i}\n".encode())
    uplink.write("stdout", f"B {i}\n")
    uplink.settle()


def says_much(uplink: Uplink, pipe: int, i: int) -> None:
    """More than one read takes, so that a frame is heard in parts."""
    uplink.write("stdout", f"A {i}{' ' * 400_000}\n")
    uplink.settle()
    os.write(pipe, f"B {i}\n".encode())


WAYS = {each.__name__: each for each in (flushes, writes_first, says_much)}

if __name__ == "__main__":
    _, way, times, connection, pipe = sys.argv
    uplink = Uplink(socket.socket(fileno=int(connection)), 0)
    for i in range(int(times)):
        WAYS[way](uplink, int(pipe), i)
    uplink.write("stdout", "end\n")
    uplink.flush()
