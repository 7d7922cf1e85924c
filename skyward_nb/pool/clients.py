"""Who conducts a pool, in words."""

from __future__ import annotations

import socket

from skyward_nb.words.parts import Client


def spell_client(client: Client) -> str:
    """A client in words."""
    here = f" on {client.host}" if client.host != socket.gethostname() else ""
    of = f" of {client.notebook}" if client.notebook else ""
    return f"{client.program or f'the kernel{of}'} (process {client.pid}{here})"
