"""Who conducts a pool, in words."""

from __future__ import annotations

import socket

import psutil

from skyward_nb.words.parts import Client

NOTICED = 20.0
"""Seconds after which machines elsewhere miss a client whose line was cut."""


def has_ended(client: Client) -> bool:
    """Whether it was a process of this machine, which is no more."""
    if client.host != socket.gethostname():
        return False
    try:
        return psutil.Process(client.pid).create_time() != client.since
    except psutil.NoSuchProcess:
        return True


def spell_client(client: Client) -> str:
    """A client in words."""
    here = f" on {client.host}" if client.host != socket.gethostname() else ""
    of = f" of {client.notebook}" if client.notebook else ""
    return f"{client.program or f'the kernel{of}'} (process {client.pid}{here})"
