"""The client of a pool: whether it lives, and in words."""

from __future__ import annotations

import socket

import psutil

from skyward_nb.protocol.message_parts import Client

NOTICED = 20.0
"""Seconds after which remote machines notice that their client's line is cut."""
_DRIFT = 5.0
"""Seconds by which a change of the clock may shift the start time of a process."""


def is_running(client: Client) -> bool:
    """Whether it is a process of this machine that lives."""
    if client.host != socket.gethostname():
        return False
    try:
        return abs(psutil.Process(client.pid).create_time() - client.since) < _DRIFT
    except psutil.Error:
        return False


def has_ended(client: Client) -> bool:
    """Whether it was a process of this machine that has ended."""
    return client.host == socket.gethostname() and not is_running(client)


def spell_client(client: Client) -> str:
    """A client in words."""
    here = f" on {client.host}" if client.host != socket.gethostname() else ""
    of = f" of {client.notebook}" if client.notebook else ""
    return f"{client.program or f'the kernel{of}'} (process {client.pid}{here})"
