"""A stream to an agent by TCP and TLS, as a plain socket of this machine: lines read and write those."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from skyward_nb.store.pool_key import AGENT, MutualTLS

_BUFFER = 1 << 20
_SHUTDOWN_LIMIT = 2.0


class _End(asyncio.Protocol):
    """One of two ends: what comes here goes on at the `other` one, as fast as that takes it."""

    def __init__(self) -> None:
        self.other: _End | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self.other is None:
            transport.pause_reading()

    def join(self, other: _End) -> None:
        """Carry bytes both ways from now on."""
        self.other, other.other = other, self
        for each in (self, other):
            if each.transport is not None:
                each.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class _Near(_End):
    """The end on this side: a client that says no more still hears, until the agent has closed its half."""

    def eof_received(self) -> bool:
        if self.other is not None and self.other.transport is not None:
            # TLS knows no half: the agent reads what was sent, and closes.
            self.other.transport.close()
        return True


async def carried_by_tls(connection: socket.socket, tls: MutualTLS, limit: float) -> socket.socket:
    """A socket whose other end is the agent at the other end of this connection; raises OSError.

    The connection is used up, also where this fails.
    """
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    for end in (near, far):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
    inner, outer = _Near(), _End()
    try:
        connection.setblocking(False)
        await loop.create_connection(
            lambda: outer,
            sock=connection,
            ssl=tls.outer,
            server_hostname=AGENT,
            ssl_handshake_timeout=limit,
            ssl_shutdown_timeout=_SHUTDOWN_LIMIT,
        )
        far.setblocking(False)
        await loop.create_connection(lambda: inner, sock=far)
        inner.join(outer)
    except BaseException:
        for end in (near, far, connection):
            end.close()
        if outer.transport is not None:
            with contextlib.suppress(Exception):
                outer.transport.abort()
        raise
    return near
