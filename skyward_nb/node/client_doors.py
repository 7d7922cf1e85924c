"""Other ways to the agent: TLS at private addresses of its machine, each for one client that has told it a key.

An engine's own commands (srun) carry a client's line slowly, and each is a step of the job. Where TCP is let through, a
client that came by them opens a door for itself, and commands and values go by it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from weakref import WeakSet

from skyward_nb.node.client_connection import ClientConnection
from skyward_nb.node.peer_agents import PeerAgents, private_listeners, tune
from skyward_nb.store.pool_key import MutualTLS
from skyward_nb.store.value_messages import Address, AdmitPeers, PeersAdmitted

_MOST = 4
"""Doors that stay open; one by which a client is here stays in any case."""
_HANDSHAKE_LIMIT = 4.0
_OPEN_LIMIT = 4.0


class ClientDoors:
    """Doors for clients; `serve` gets each stream for values, in a thread of its own.

    `welcome` makes the agent's end of a line, on the loop.
    """

    def __init__(self, folder: Path, serve: Callable[[socket.socket], None]) -> None:
        self._folder = folder
        self._serve = serve
        self._loop: asyncio.AbstractEventLoop | None = None
        self._doors: list[_Door] = []
        self.welcome: Callable[[], ClientConnection] | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the loop that accepts connections."""
        self._loop = loop

    def open(self, ask: AdmitPeers) -> PeersAdmitted:
        """Let in the client that has this key, from now on; from any thread but the loop's. Raises OSError."""
        assert self._loop is not None
        values = PeerAgents(self._folder, self._serve)
        values.begin(self._loop)
        door = _Door(values)
        tls = MutualTLS(ask.key, self._folder, ask.other)
        found = values.meet(ask)
        if self.welcome is None:
            asyncio.run_coroutine_threadsafe(self._keep(door), self._loop).result(_OPEN_LIMIT)
            return PeersAdmitted(found)
        listening = self._listen(door, tls, private_listeners(ask.hosts), self.welcome)
        commands = asyncio.run_coroutine_threadsafe(listening, self._loop).result(_OPEN_LIMIT)
        return PeersAdmitted(found, commands)

    async def _listen(
        self,
        door: _Door,
        tls: MutualTLS,
        listeners: list[socket.socket],
        welcome: Callable[[], ClientConnection],
    ) -> tuple[Address, ...]:
        loop = asyncio.get_running_loop()

        def connected() -> ClientConnection:
            line = welcome()
            door.lines.add(line)
            return line

        for listener in listeners:
            tune(listener)  # connections have what their listener has
            server = await loop.create_server(
                connected, sock=listener, ssl=tls.inner, ssl_handshake_timeout=_HANDSHAKE_LIMIT
            )
            door.servers.append(server)
        await self._keep(door)
        found = [listener.getsockname() for listener in listeners]
        return tuple((host, port) for host, port, *_ in found)

    async def _keep(self, door: _Door) -> None:
        """Keep it with the others; the oldest ones by which nobody is here any more are closed."""
        unused = [each for each in self._doors if not each.is_used]
        for each in unused[: max(0, len(self._doors) + 1 - _MOST)]:
            self._doors.remove(each)
            each.close()
        self._doors.append(door)

    def close(self) -> None:
        """Let nobody in any more."""
        for door in self._doors:
            door.close()
        self._doors.clear()


class _Door:
    """Where one client comes in."""

    def __init__(self, values: PeerAgents) -> None:
        self.values = values
        self.servers: list[asyncio.Server] = []
        self.lines: WeakSet[ClientConnection] = WeakSet()

    @property
    def is_used(self) -> bool:
        return any(not line.is_closed for line in self.lines)

    def close(self) -> None:
        self.values.close()
        for server in self.servers:
            server.close()
