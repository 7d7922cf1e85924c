"""The client of a pool: whether it lives, and in words."""

from __future__ import annotations

import socket

import psutil

from skyward_nb.protocol.message_parts import Client
from skyward_nb.system import processes

NOTICED = 20.0
"""Seconds after which remote machines notice that their client's line is cut."""
_DRIFT = 5.0
"""Seconds by which a change of the clock may shift the start time of a process."""
_MOST_KNOWN = 256
_known: dict[tuple[int, float], processes.ProcessIdentity] = {}
"""Clients that were running, by process id and start: a panel asks each second, and psutil takes a fourth of its poll."""


def is_running(client: Client) -> bool:
    """Whether it is a process of this machine that lives."""
    if client.host != socket.gethostname():
        return False
    now = processes.known(client.pid)
    if now is not None and _known.get((client.pid, client.since)) == now:
        return True
    try:
        found = abs(psutil.Process(client.pid).create_time() - client.since) < _DRIFT
    except psutil.Error:
        return False
    if found and now is not None:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[client.pid, client.since] = now
    return found


def has_ended(client: Client) -> bool:
    """Whether it was a process of this machine that has ended."""
    return client.host == socket.gethostname() and not is_running(client)


def spell_client(client: Client) -> str:
    """A client in words."""
    here = f" on {client.host}" if client.host != socket.gethostname() else ""
    of = f" of {client.notebook}" if client.notebook else ""
    return f"{client.program or f'the kernel{of}'} (process {client.pid}{here})"
