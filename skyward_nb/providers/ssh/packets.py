"""Packets of values on an SSH connection, taken from its transport in the place of asyncssh.

What comes is read into memory that is kept for it, and opened there, as what goes is sealed, by
`compat.asyncssh_private`. All else is asyncssh's to do as ever, and everything where something is not
as it is known there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import asyncssh

from skyward_nb.compat.asyncssh_private import (
    LARGEST,
    LENGTH,
    TAG,
    GcmPackets,
    gcm_packets,
    is_known_channel,
    transport_of,
)

_ROOM = 1 << 20


class Viewer(asyncssh.SSHUNIXSession[bytes]):
    """A session that keeps nothing of the memory in which it is given what came.

    Only with `is_known` its channel is as it is known here.
    """

    def __init__(self, packets: Packets | None) -> None:
        self._packets = packets
        self._channel: asyncssh.SSHUNIXChannel[bytes] | None = None
        self.is_known: bool = False

    def connection_made(self, chan: asyncssh.SSHUNIXChannel[bytes]) -> None:
        """The channel is there."""
        self._channel = chan
        self.is_known = is_known_channel(chan)

    def _sealed(self, view: memoryview) -> int:
        """Send what goes of this in packets of ours; how many bytes, 0: asyncssh has to."""
        if self._packets is None or self._channel is None or not self.is_known:
            return 0
        return self._packets.gcm.send(self._channel, view)


class Packets(asyncio.BufferedProtocol):
    """Between a connection's transport and asyncssh; `heard` is called when something comes."""

    def __init__(
        self,
        connection: asyncssh.SSHClientConnection,
        gcm: GcmPackets,
        heard: Callable[[], None],
    ) -> None:
        self.gcm = gcm
        self._connection = connection
        self._heard = heard
        self._room = memoryview(bytearray(_ROOM))
        self._filled = 0

    def begin(self) -> None:
        """Take what comes from now on, where the transport is one of the loop's own."""
        transport = transport_of(self._connection)
        if isinstance(transport, asyncio.Transport) and transport.get_extra_info("socket"):
            transport.set_protocol(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Memory for what comes next."""
        del sizehint
        return self._room[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """So much has come."""
        gcm = self.gcm
        self._heard()
        gcm.restart_keepalive()
        end, at = self._filled + nbytes, 0
        while end - at > LENGTH and gcm.is_up():
            size = int.from_bytes(self._room[at : at + LENGTH], "big")
            whole = LENGTH + size + TAG
            if not gcm.is_between() or whole > LARGEST:
                # It is in the middle of one, or will be: it goes on from there.
                self._leave(at, end)
                at = end
            elif whole > end - at:
                break
            else:
                if not gcm.open(self._room, at, size):
                    self._leave(at, at + whole)
                at += whole
        rest = end - at
        if at and rest:
            self._room[:rest] = bytes(self._room[at:end])
        self._filled = rest

    def _leave(self, start: int, end: int) -> None:
        self._connection.data_received(bytes(self._room[start:end]))

    def eof_received(self) -> bool | None:
        """The other end has hung up."""
        return self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """The transport has as much as it takes."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """The transport takes more."""
        self._connection.resume_writing()


def packets_of(
    connection: asyncssh.SSHClientConnection, heard: Callable[[], None]
) -> Packets | None:
    """Those of a connection that is logged in; None where asyncssh has to do it."""
    gcm = gcm_packets(connection, Viewer)
    return None if gcm is None else Packets(connection, gcm, heard)
