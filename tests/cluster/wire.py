"""A bad line: carries frames between two links, late, fewer, or slower, as it is told.

Run as a script of its own in the street's namespaces, with the names of the two links. On stdin come
lines of JSON: `delay` in seconds each way, `loss` as a fraction, `rate` in bytes per second each way,
0 for no limit. It ends when stdin does. It does what `tc netem` does, which many kernels lack.

Frames are carried as the kernel hands them over, large ones before they are cut into packets: that is
why Python is fast enough. `loss` counts in such frames.
"""

from __future__ import annotations

import json
import os
import random
import select
import socket
import struct
import sys
import time
from collections import deque

_PACKETS = 263
_PROMISCUOUS, _VNET_HEADER, _IGNORE_OUTGOING = 1, 15, 23
_SEND_FORCE, _RECEIVE_FORCE = 32, 33
_EVERYTHING = 0x0003
_LARGEST = 70_000
_AT_ONCE = 64
_WAITS = 0.25
"""Seconds that a frame waits at most for those before it on a slow line; then it is lost, as in a router."""


class End:
    """One end of the wire, and what is on its way to it."""

    def __init__(self, link: str) -> None:
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.setsockopt(_PACKETS, _VNET_HEADER, 1)
        self.socket.setsockopt(_PACKETS, _IGNORE_OUTGOING, 1)
        for buffer in (_SEND_FORCE, _RECEIVE_FORCE):
            self.socket.setsockopt(socket.SOL_SOCKET, buffer, 64 << 20)
        self.socket.bind((link, _EVERYTHING))
        membership = struct.pack("iHH8s", socket.if_nametoindex(link), 1, 0, b"")
        self.socket.setsockopt(_PACKETS, _PROMISCUOUS, membership)
        self.socket.setblocking(False)
        self.coming: deque[tuple[float, bytes]] = deque()
        self.free_at = 0.0
        """When the last of what was let in has left a slow line."""

    def take(self, frame: bytes, now: float, delay: float, rate: float) -> None:
        """A frame for this end: when it will be there, if at all."""
        left = now
        if rate:
            if self.free_at - now > _WAITS:
                return
            left = self.free_at = max(now, self.free_at) + len(frame) / rate
        at = left + delay
        # Never before one that came earlier: a line keeps the order.
        self.coming.append((max(at, self.coming[-1][0]) if self.coming else at, frame))

    def deliver(self, now: float) -> None:
        while self.coming and self.coming[0][0] <= now:
            try:
                self.socket.send(self.coming.popleft()[1])
            except OSError:
                """No room, or the link is down: it is lost."""


class Wire:
    """Two ends, and how bad it is between them."""

    def __init__(self, links: list[str]) -> None:
        one, two = (End(link) for link in links)
        self.ends = (one, two)
        self.towards = {one.socket: two, two.socket: one}
        self.delay = self.loss = self.rate = 0.0
        self._told = b""
        self._dice = random.Random(1)

    def wait(self) -> list:
        """What can be read, once there is something or something is due."""
        due = min((end.coming[0][0] for end in self.ends if end.coming), default=None)
        wait = None if due is None else max(0.0, due - time.monotonic())
        return select.select([0, *self.towards], [], [], wait)[0]

    def hear(self) -> bool:
        """What is told of the line; whether anybody is still there to tell."""
        got = os.read(0, 4096)
        *lines, self._told = (self._told + got).split(b"\n")
        for line in lines:
            said = json.loads(line)
            self.delay, self.loss, self.rate = said["delay"], said["loss"], said["rate"]
            print("done", flush=True)
        return bool(got)

    def carry(self, source: socket.socket) -> None:
        """Take the frames that came, those that are not lost."""
        now = time.monotonic()
        for _ in range(_AT_ONCE):
            try:
                frame = source.recv(_LARGEST)
            except OSError:
                return
            if not self.loss or self._dice.random() >= self.loss:
                self.towards[source].take(frame, now, self.delay, self.rate)


def main() -> None:
    wire = Wire(sys.argv[1:3])
    print("ready", flush=True)
    while True:
        for each in wire.wait():
            if each != 0:
                wire.carry(each)
            elif not wire.hear():
                return
        for end in wire.ends:
            end.deliver(time.monotonic())


main()
