"""Other ways to the agent: TLS at private addresses of its machine, each for one client that has told it a key.

An engine's own commands (srun) carry a client's line slowly, and each is a step of the job. Where TCP is let through, a
client that came by them has the agent listen for it alone, and commands and values go that way.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from weakref import WeakSet

from skyward_nb.node.client_connection import ClientConnection
from skyward_nb.node.peer_agents import PeerAgents, private_listeners
from skyward_nb.store.pool_key import MutualTLS
from skyward_nb.store.value_messages import Address, AdmitPeers, PeersAdmitted
from skyward_nb.system.connections import tune

_MOST = 4
"""Clients whose listeners stay open; those of a client that is here stay in any case."""
_HANDSHAKE_LIMIT = 4.0
_OPEN_LIMIT = 4.0


class DirectListeners:
    """Listeners for clients; `serve` gets each stream for values, in a thread of its own.

    `welcome` makes the agent's end of a line, on the loop.
    """

    def __init__(self, folder: Path, serve: Callable[[socket.socket], None]) -> None:
        self._folder = folder
        self._serve = serve
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened: list[_Opened] = []
        self.welcome: Callable[[], ClientConnection] | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the loop that accepts connections."""
        self._loop = loop

    def open(self, ask: AdmitPeers) -> PeersAdmitted:
        """Let in the client that has this key, from now on; from any thread but the loop's. Raises OSError."""
        assert self._loop is not None
        values = PeerAgents(self._folder, self._serve)
        values.begin(self._loop)
        tls = MutualTLS(ask.key, self._folder, ask.other)
        opened = _Opened(values)
        try:
            found = values.meet(ask)
            if self.welcome is not None:
                opened.listeners = private_listeners(ask.hosts)
            entering = self._listen(opened, tls, self.welcome)
            coming = asyncio.run_coroutine_threadsafe(entering, self._loop)
            try:
                return PeersAdmitted(found, coming.result(_OPEN_LIMIT))
            except TimeoutError:
                raise TimeoutError("the agent has no time to open a listener") from None
            finally:
                coming.cancel()
        except BaseException:
            self._loop.call_soon_threadsafe(self._drop, opened)
            raise

    async def _listen(
        self, opened: _Opened, tls: MutualTLS, welcome: Callable[[], ClientConnection] | None
    ) -> tuple[Address, ...]:
        """Serve these listeners, and keep them; their addresses. None if they were given up."""
        loop = asyncio.get_running_loop()

        def connected() -> ClientConnection:
            assert welcome is not None
            line = welcome()
            opened.lines.add(line)
            return line

        found: list[Address] = []
        while opened.listeners and not opened.is_closed:
            listener = opened.listeners[0]
            host, port, *_ = listener.getsockname()
            tune(listener)  # connections have what their listener has
            server = await loop.create_server(
                connected,
                sock=listener,
                ssl=tls.inner,
                ssl_handshake_timeout=_HANDSHAKE_LIMIT,
                start_serving=False,  # it would wait for that, and nobody could close it meanwhile
            )
            opened.servers.append(server)
            opened.listeners.remove(listener)
            found.append((host, port))
            await server.start_serving()
        if not opened.is_closed:
            self._keep(opened)
        return tuple(found)

    def _drop(self, opened: _Opened) -> None:
        """Close listeners of which their client was not told."""
        opened.close()
        if opened in self._opened:
            self._opened.remove(opened)

    def _keep(self, opened: _Opened) -> None:
        """Keep it with the others; the oldest ones by which nobody is here any more are closed."""
        unused = [each for each in self._opened if not each.is_used]
        for each in unused[: max(0, len(self._opened) + 1 - _MOST)]:
            self._opened.remove(each)
            each.close()
        self._opened.append(opened)

    def close(self) -> None:
        """Let nobody in any more."""
        for opened in self._opened:
            opened.close()
        self._opened.clear()


class _Opened:
    """Where one client comes in."""

    def __init__(self, values: PeerAgents) -> None:
        self.values = values
        self.listeners: list[socket.socket] = []
        """Those that no server has yet."""
        self.servers: list[asyncio.Server] = []
        self.is_closed = False
        self.lines: WeakSet[ClientConnection] = WeakSet()

    @property
    def is_used(self) -> bool:
        return any(not line.is_closed for line in self.lines)

    def close(self) -> None:
        self.is_closed = True
        self.values.close()
        for part in (*self.servers, *self.listeners):
            part.close()
