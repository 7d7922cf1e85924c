"""A second way to the values of a node: TLS from here, or from the login node, to its agent.

srun carries 50 to 100 MB/s, and each stream is a step of the job. Where TCP from the login node to nodes is let through,
and it is at most sites, values go that way; where it is not, srun carries them. The agent listens at private addresses
once it is asked to, for one key, which this client has made for this node and told it through srun.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from skyward_nb.providers.slurm.login_node import through_login
from skyward_nb.store.byte_streams import ByteStream
from skyward_nb.store.pool_key import MutualTLS, new_key
from skyward_nb.store.value_messages import ANSWERS, Address, AdmitPeers, PeersAdmitted
from skyward_nb.store.value_stream import StoreRefused, ValueStream, request

_CONNECT_LIMIT = 4.0
_LOGIN_LIMIT = 20.0
_SHUT_FOR = 600.0
"""Seconds for which srun carries values after nobody was reached at any address."""


class NodeDoor:
    """The agent of the node `name`, by TCP from here, or by way of the host `login`; `asking` opens a stream by srun."""

    def __init__(
        self,
        name: str,
        login: str | None,
        asking: Callable[[], Awaitable[socket.socket | ByteStream]],
    ) -> None:
        self._name = name
        self._login = login
        self._asking = asking
        self._entering = asyncio.Lock()
        self._tls: MutualTLS | None = None
        self._addresses: tuple[Address, ...] = ()
        self._shut_until = 0.0
        self._tunnels: set[asyncio.Task[int]] = set()

    async def opened(self) -> socket.socket | None:
        """A stream with TLS; None where there is no such way now."""
        async with self._entering:
            if time.monotonic() < self._shut_until:
                return None
            try:
                if self._tls is None:
                    await self._admitted()
                for address in self._addresses:
                    with contextlib.suppress(OSError):
                        return await self._entered(address)
            except (OSError, StoreRefused):
                """It is asked again later."""
            self._tls = None
            self._shut_until = time.monotonic() + _SHUT_FOR
            return None

    async def _admitted(self) -> None:
        """Have the agent listen for a new key; raises OSError, `StoreRefused`."""
        key = new_key()
        stream = ValueStream(await self._asking(), ANSWERS)
        try:
            ask = AdmitPeers(self._name, key, is_client=True)
            admitted = await asyncio.to_thread(request, stream, ask, PeersAdmitted)
        finally:
            stream.close()
        self._addresses = admitted.addresses
        with TemporaryDirectory(prefix=".skyward-") as folder:
            self._tls = MutualTLS(key, Path(folder))

    async def _entered(self, address: Address) -> socket.socket:
        """A stream to an address; raises OSError."""
        if self._login is None:
            return await asyncio.to_thread(self._direct, address)
        near = await self._tunnel(self._login, address)
        return await asyncio.to_thread(self._handshake, near, _LOGIN_LIMIT)

    def _direct(self, address: Address) -> socket.socket:
        connection = socket.create_connection(address, _CONNECT_LIMIT)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._handshake(connection, _CONNECT_LIMIT)

    def _handshake(self, connection: socket.socket, limit: float) -> socket.socket:
        assert self._tls is not None
        try:
            connection.settimeout(limit)
            return self._tls.enter(connection)
        except BaseException:
            connection.close()
            raise

    async def _tunnel(self, login: str, address: Address) -> socket.socket:
        near, far = socket.socketpair()
        with far:
            try:
                process = await asyncio.create_subprocess_exec(
                    *through_login(login, *address),
                    stdin=far.fileno(),
                    stdout=far.fileno(),
                    stderr=asyncio.subprocess.DEVNULL,
                    env=os.environ,
                    start_new_session=True,
                )
            except BaseException:
                near.close()
                raise
        # It ends when its stdin does, and with the connection.
        ending = asyncio.ensure_future(process.wait())
        self._tunnels.add(ending)
        ending.add_done_callback(self._tunnels.discard)
        return near

    async def close(self) -> None:
        """Wait for the ends of tunnels whose streams are closed."""
        if self._tunnels:
            await asyncio.wait([*self._tunnels], timeout=_CONNECT_LIMIT)
