"""A port of a host's loopback that is served here, over one SSH connection, as bulk."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from typing import Any, cast

import asyncssh
from asyncssh.constants import OPEN_ADMINISTRATIVELY_PROHIBITED

from skyward_nb.bootstrap.remote_shell import Serve
from skyward_nb.providers.ssh.stream import BulkGate, ChannelRelay

_HOME = "127.0.0.1"


class RemoteForward:
    """A port that a host listens at for us; connections to it are streams like others."""

    def __init__(self, gate: BulkGate, serve: Serve) -> None:
        self.port: int = 0
        self._gate = gate
        self._serve = serve
        self._listener: asyncssh.SSHListener | None = None
        self._served: set[asyncio.Task[None]] = set()

    async def open(self, connection: asyncssh.SSHClientConnection) -> None:
        """Have the host listen; raises `asyncssh.Error`."""
        # Its sessions are those of streams to unix sockets: asyncssh speaks alike to both.
        begin = cast(Any, self._begin)
        self._listener = await connection.create_server(begin, _HOME, 0)
        self.port = self._listener.get_port()

    async def close(self) -> None:
        """Have the host listen no more, and hang up on who is served."""
        assert self._listener is not None
        self._listener.close()
        with contextlib.suppress(asyncssh.Error, OSError):
            await self._listener.wait_closed()
        for task in self._served:
            task.cancel()
        await asyncio.gather(*self._served, return_exceptions=True)

    def _begin(self, host: str, _port: int) -> ChannelRelay:
        """Somebody there has connected."""
        # With GatewayPorts sshd listens on every address, whatever it was asked.
        if not _is_loopback(host):
            why = "only for who is on that machine"
            raise asyncssh.ChannelOpenError(OPEN_ADMINISTRATIVELY_PROHIBITED, why)
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._talk(ours))
        self._served.add(task)
        task.add_done_callback(self._served.discard)
        return ChannelRelay(theirs, self._gate)

    async def _talk(self, end: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=end)
        try:
            await self._serve(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def offered_at(
    connection: asyncssh.SSHClientConnection, gate: BulkGate, serve: Serve
) -> RemoteForward:
    """A port of the host at the other end that is served here; raises `asyncssh.Error`."""
    offered = RemoteForward(gate, serve)
    await offered.open(connection)
    return offered
