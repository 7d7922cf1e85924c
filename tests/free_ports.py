"""Ports for servers of tests that end and come back, or are started by a number."""

from __future__ import annotations

import contextlib
import random
import socket

_BELOW_SYSTEMS_OWN = range(16_000, 32_000)
"""Of these Linux gives none by itself: no other process has one by chance while its server is away."""


def free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """So many ports at which nothing listens now."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    found: list[int] = []
    for port in random.sample(_BELOW_SYSTEMS_OWN, 1000):
        with socket.socket(family) as tried, contextlib.suppress(OSError):
            tried.bind((address, port))
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"{address} has not {count} free ports")


def free_port(address: str = "127.0.0.1") -> int:
    """A port at which nothing listens now."""
    return free_ports(1, address)[0]
