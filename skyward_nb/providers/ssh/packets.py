"""Packets of values on an SSH connection, with less work for each byte than asyncssh takes.

What comes is read into memory that is kept for it, and large packets are opened there. What goes is
sealed without the empty packet that asyncssh says before each, against an attack on CBC (RFC 4253,
section 9.3.1), which GCM does not know. All else is asyncssh's to do as ever, and everything where
something is not as it is known here.

Sources: RFC 4253, section 6 (binary packets), RFC 4254, section 5.2 (data of channels), RFC 5647,
section 7 (AES-GCM: the length is not encrypted; 16 bytes of tag come last).
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable
from typing import Any, cast

import asyncssh
from asyncssh.encryption import GCMEncryption
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_ROOM = 1 << 20
_LARGEST = 256 << 10
_DATA = 94
"""SSH_MSG_CHANNEL_DATA."""
_LENGTH, _TAG, _BLOCK, _LEAST_PADDING = 4, 16, 16, 4
_HEADER = struct.Struct(">BBII")
"""What is before the data: the padding's length, the kind, the channel, the data's length."""
_HEAD = _HEADER.size
_AT_ONCE = 3
"""Packets that are written together: of more, memory is got from the system anew each time."""
_NEEDED = {
    "_channels", "_compressor", "_decompressor", "_finish_recv_packet", "_inpbuf", "_kex_complete",
    "_recv_encryption", "_recv_handler", "_recv_pkthdr", "_recv_seq", "_rekey_bytes",
    "_rekey_bytes_sent", "_reset_keepalive_timer", "_send", "_send_encryption", "_send_seq",
    "_transport",
}  # fmt: skip


_NEEDED_OF_CHANNELS = {
    "_accept_data", "_recv_paused", "_recv_state", "_recv_window", "_send_buf", "_send_chan",
    "_send_pktsize", "_send_state", "_send_window", "_session",
}  # fmt: skip


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
        self.is_known = all(hasattr(chan, name) for name in _NEEDED_OF_CHANNELS)

    def _sealed(self, view: memoryview) -> int:
        """Send what goes of this in packets of ours; how many bytes, 0: asyncssh has to."""
        if self._packets is None or self._channel is None or not self.is_known:
            return 0
        return self._packets.send(self._channel, view)


class Sealer:
    """Seals or opens packets with one key of a connection, as long as that is its key."""

    def __init__(self, encryption: GCMEncryption) -> None:
        self.encryption = encryption
        self.cipher: Any = cast(Any, encryption)._cipher
        self.aes: Any = AESGCM(self.cipher._key)


class Packets(asyncio.BufferedProtocol):
    """Between a connection's transport and asyncssh; `heard` is called when something comes."""

    def __init__(self, connection: asyncssh.SSHClientConnection, heard: Callable[[], None]) -> None:
        self._connection: Any = connection
        self._heard = heard
        self._room = memoryview(bytearray(_ROOM))
        self._filled = 0
        self._plain = memoryview(bytearray(_LARGEST))
        self._sealing = memoryview(bytearray(_LARGEST))
        self._opener: Sealer | None = None
        self._sealer: Sealer | None = None

    def begin(self) -> None:
        """Take what comes from now on, where the transport is one of the loop's own."""
        transport = self._connection._transport
        if isinstance(transport, asyncio.Transport) and transport.get_extra_info("socket"):
            transport.set_protocol(self)

    # ── what comes ──────────────────────────────────────────────────────────────────────

    def get_buffer(self, sizehint: int) -> memoryview:
        """Memory for what comes next."""
        del sizehint
        return self._room[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """So much has come."""
        self._heard()
        self._connection._reset_keepalive_timer()
        end, at = self._filled + nbytes, 0
        while end - at > _LENGTH and self._connection._transport is not None:
            size = int.from_bytes(self._room[at : at + _LENGTH], "big")
            whole = _LENGTH + size + _TAG
            if not self._is_between() or whole > _LARGEST:
                # It is in the middle of one, or will be: it goes on from there.
                self._leave(at, end)
                at = end
            elif whole > end - at:
                break
            else:
                if not self._take(at, size):
                    self._leave(at, at + whole)
                at += whole
        rest = end - at
        if at and rest:
            self._room[:rest] = bytes(self._room[at:end])
        self._filled = rest

    def _is_between(self) -> bool:
        """Whether asyncssh waits for a packet of which nothing has come."""
        ssh = self._connection
        return not ssh._inpbuf and ssh._recv_handler == ssh._recv_pkthdr

    def _leave(self, start: int, end: int) -> None:
        self._connection.data_received(bytes(self._room[start:end]))

    def _take(self, at: int, size: int) -> bool:
        """Open a packet and hand over the data in it; False: nothing has been done."""
        ssh = self._connection
        opener = self._opener
        if opener is None or opener.encryption is not ssh._recv_encryption:
            if not isinstance(ssh._recv_encryption, GCMEncryption):
                return False
            opener = self._opener = Sealer(ssh._recv_encryption)
        plain = self._plain[:size]
        body = at + _LENGTH
        sealed = self._room[body : body + size + _TAG]
        try:
            opener.aes.decrypt_into(opener.cipher._iv, sealed, self._room[at:body], plain)
        except InvalidTag:
            return False  # asyncssh tells it
        padding, kind, number, length = _HEADER.unpack_from(plain)
        channel = ssh._channels.get(number)
        if (
            kind != _DATA
            or _HEAD + length + padding != size
            or channel is None
            or not isinstance(session := getattr(channel, "_session", None), Viewer)
            or not session.is_known
            or channel._recv_state != "open"
            or channel._recv_paused
            or length > channel._recv_window
        ):
            return False
        opener.cipher._update_iv()
        channel._accept_data(plain[_HEAD : _HEAD + length])
        ssh._finish_recv_packet(_DATA, ssh._recv_seq)
        return True

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

    # ── what goes ───────────────────────────────────────────────────────────────────────

    def send(self, channel: asyncssh.SSHUNIXChannel[bytes], view: memoryview) -> int:
        """Send what goes of this as data of a channel, in a few packets; how many bytes, 0: asyncssh has to."""
        to, ssh = cast(Any, channel), self._connection
        if to._send_buf or to._send_state != "open" or not ssh._kex_complete:
            return 0
        sealer = self._sealer
        if sealer is None or sealer.encryption is not ssh._send_encryption:
            if not isinstance(ssh._send_encryption, GCMEncryption):
                return 0
            sealer = self._sealer = Sealer(ssh._send_encryption)
        sizes: list[int] = []
        left, window = len(view), to._send_window
        room = ssh._rekey_bytes - ssh._rekey_bytes_sent
        while left and window > 0 and room > 0 and len(sizes) < _AT_ONCE:
            size = min(left, window, to._send_pktsize, _LARGEST - 64)
            sizes.append(size)
            left, window, room = left - size, window - size, room - size
        if not sizes:
            return 0
        out = memoryview(bytearray(sum(_LENGTH + _padded(size) + _TAG for size in sizes)))
        padding = os.urandom(2 * _BLOCK)
        at = start = 0
        for size in sizes:
            data = view[start : start + size]
            at += self._seal(sealer, to._send_chan, data, padding, out[at:])
            start += size
        to._send_window -= start
        ssh._send(out)
        return start

    def _seal(
        self, sealer: Sealer, channel: int, data: memoryview, padding: bytes, out: memoryview
    ) -> int:
        """Seal one packet; how many bytes it has."""
        ssh, length = self._connection, len(data)
        size = _padded(length)
        end = _HEAD + length
        plain = self._sealing[:size]
        _HEADER.pack_into(plain, 0, size - end, _DATA, channel, length)
        plain[_HEAD:end] = data
        plain[end:] = padding[: size - end]
        out[:_LENGTH] = head = size.to_bytes(_LENGTH, "big")
        end = _LENGTH + size + _TAG
        sealer.aes.encrypt_into(sealer.cipher._iv, plain, head, out[_LENGTH:end])
        sealer.cipher._update_iv()
        ssh._send_seq = (ssh._send_seq + 1) & 0xFFFFFFFF
        ssh._rekey_bytes_sent += size
        return end


def _padded(length: int) -> int:
    """How many bytes are sealed of a packet with so many bytes of data: whole blocks."""
    padding = -(_HEAD + length) % _BLOCK
    return _HEAD + length + padding + (_BLOCK if padding < _LEAST_PADDING else 0)


def packets_of(
    connection: asyncssh.SSHClientConnection, heard: Callable[[], None]
) -> Packets | None:
    """Those of a connection that is logged in; None where it, or asyncssh, is not as it is known here."""
    ssh = cast(Any, connection)
    ciphers = [getattr(ssh, name, None) for name in ("_recv_encryption", "_send_encryption")]
    if (
        all(hasattr(ssh, name) for name in _NEEDED)
        and all(isinstance(each, GCMEncryption) for each in ciphers)
        and all(
            hasattr(each._cipher, name)
            for each in cast(Any, ciphers)
            for name in ("_key", "_iv", "_update_iv")
        )
        and hasattr(AESGCM, "decrypt_into")
        and not ssh._compressor
        and not ssh._decompressor
    ):
        return Packets(connection, heard)
    return None
