"""A port of a host's loopback that is served here, over one SSH connection, as bulk."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncGenerator
from typing import Any, cast

import asyncssh
from asyncssh.constants import OPEN_ADMINISTRATIVELY_PROHIBITED

from skyward_nb.bootstrap.remote_shell import Serve
from skyward_nb.providers.ssh.stream import BulkGate, ChannelRelay

_HOME = "127.0.0.1"


@contextlib.asynccontextmanager
async def served_port(
    connection: asyncssh.SSHClientConnection, gate: BulkGate, serve: Serve
) -> AsyncGenerator[int]:
    """Within this context, the host listens at a port for this side; raises `asyncssh.Error`."""
    served: set[asyncio.Task[None]] = set()

    def begin(host: str, _port: int) -> ChannelRelay:
        # With GatewayPorts sshd listens on every address, whatever it was asked.
        if not _is_loopback(host):
            why = "only for users of that machine"
            raise asyncssh.ChannelOpenError(OPEN_ADMINISTRATIVELY_PROHIBITED, why)
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        task = asyncio.get_running_loop().create_task(_talk(ours, serve))
        served.add(task)
        task.add_done_callback(served.discard)
        return ChannelRelay(theirs, gate)

    # Its sessions are those of streams to unix sockets: asyncssh treats both alike.
    listener = await connection.create_server(cast(Any, begin), _HOME, 0)
    try:
        yield listener.get_port()
    finally:
        listener.close()
        with contextlib.suppress(asyncssh.Error, OSError):
            await listener.wait_closed()
        for task in served:
            task.cancel()
        await asyncio.gather(*served, return_exceptions=True)


async def _talk(end: socket.socket, serve: Serve) -> None:
    reader, writer = await asyncio.open_connection(sock=end)
    try:
        await serve(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
