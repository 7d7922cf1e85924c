"""asyncssh's private names: the packets of a connection, what it hears of its transport, its config.

Packets of channel data are opened and sealed here with a connection's own keys, with less work for
each byte than asyncssh takes: in memory that is kept for it, and without the empty packet that
asyncssh says before each, against an attack on CBC (RFC 4253, section 9.3.1), which GCM does not
know. Keys, nonces, counters and windows stay asyncssh's own. A nonce used twice would give the key
away, and nothing would be seen of it: so the versions are bounded in `pyproject.toml`.

Where a name is missing, `gcm_packets` is None and asyncssh does all of it as ever. What is not of
packets is needed for any login, and raises AttributeError or ImportError.

Sources: RFC 4253, section 6 (binary packets), RFC 4254, section 5.2 (data of channels), RFC 5647,
section 7 (AES-GCM: the length is not encrypted; 16 bytes of tag come last).

Seen with asyncssh 2.24.0 and 2.24.1.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import asyncssh
from asyncssh.channel import SSHChannel
from asyncssh.config import SSHClientConfig, SSHConfig
from asyncssh.encryption import GCMEncryption
from asyncssh.public_key import get_default_certificate_algs, get_default_public_key_algs
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

# ── packets ─────────────────────────────────────────────────────────────────────────────

LARGEST = 256 << 10
"""Bytes of a packet that is opened or sealed here."""
LENGTH, TAG = 4, 16
"""Bytes before what is sealed, and after it."""
_DATA = 94
"""SSH_MSG_CHANNEL_DATA."""
_BLOCK, _LEAST_PADDING = 16, 4
_HEADER = struct.Struct(">BBII")
"""What is before the data: the padding's length, the kind, the channel, the data's length."""
_HEAD = _HEADER.size
_AT_ONCE = 3
"""Packets that are written together: of more, memory is got from the system anew each time."""
OF_CONNECTIONS = {
    "_channels", "_compressor", "_decompressor", "_finish_recv_packet", "_inpbuf", "_kex_complete",
    "_recv_encryption", "_recv_handler", "_recv_pkthdr", "_recv_seq", "_rekey_bytes",
    "_rekey_bytes_sent", "_reset_keepalive_timer", "_send", "_send_encryption", "_send_seq",
    "_transport",
}  # fmt: skip
OF_CHANNELS = {
    "_accept_data", "_recv_paused", "_recv_state", "_recv_window", "_send_buf", "_send_chan",
    "_send_pktsize", "_send_state", "_send_window", "_session",
}  # fmt: skip
OF_CIPHERS = {"_iv", "_key", "_update_iv"}


class Reader(Protocol):
    """A channel's session that keeps nothing of the memory in which it is given what came."""

    is_known: bool
    """Whether its channel `is_known_channel`."""


class _Key:
    """Seals or opens packets with one key of a connection, as long as that is its key."""

    def __init__(self, encryption: GCMEncryption) -> None:
        self.encryption = encryption
        self.cipher: Any = cast(Any, encryption)._cipher
        self.aes: Any = AESGCM(self.cipher._key)


class GcmPackets:
    """The packets of a connection that is sealed with AES-GCM; data goes to sessions that are `reader`s."""

    def __init__(self, connection: asyncssh.SSHClientConnection, reader: type[Reader]) -> None:
        self._ssh: Any = connection
        self._reader = reader
        self._plain = memoryview(bytearray(LARGEST))
        self._sealing = memoryview(bytearray(LARGEST))
        self._opener: _Key | None = None
        self._sealer: _Key | None = None
        self._reads_header = self._ssh._recv_pkthdr
        self._finish = self._ssh._finish_recv_packet
        self.restart_keepalive: Callable[[], None] = self._ssh._reset_keepalive_timer
        """Something has come: the other end is there."""

    def is_up(self) -> bool:
        """Whether the connection has its transport still."""
        return self._ssh._transport is not None

    def is_between(self) -> bool:
        """Whether asyncssh waits for a packet of which nothing has come."""
        ssh = self._ssh
        return not ssh._inpbuf and ssh._recv_handler == self._reads_header

    def open(self, room: memoryview, at: int, size: int) -> bool:
        """Open the packet of this size at this place, and hand over the data in it.

        False: nothing has been done, asyncssh has to.
        """
        ssh = self._ssh
        opener = self._opener
        if opener is None or opener.encryption is not ssh._recv_encryption:
            if not isinstance(ssh._recv_encryption, GCMEncryption):
                return False
            opener = self._opener = _Key(ssh._recv_encryption)
        plain = self._plain[:size]
        body = at + LENGTH
        sealed = room[body : body + size + TAG]
        try:
            opener.aes.decrypt_into(opener.cipher._iv, sealed, room[at:body], plain)
        except InvalidTag:
            return False  # asyncssh tells it
        padding, kind, number, length = _HEADER.unpack_from(plain)
        channel = ssh._channels.get(number)
        if (
            kind != _DATA
            or _HEAD + length + padding != size
            or channel is None
            or not isinstance(session := getattr(channel, "_session", None), self._reader)
            or not session.is_known
            or channel._recv_state != "open"
            or channel._recv_paused
            or length > channel._recv_window
        ):
            return False
        opener.cipher._update_iv()
        channel._accept_data(plain[_HEAD : _HEAD + length])
        self._finish(_DATA, ssh._recv_seq)
        return True

    def send(self, channel: asyncssh.SSHUNIXChannel[bytes], view: memoryview) -> int:
        """Send what goes of this as data of a channel, in a few packets; how many bytes, 0: asyncssh has to."""
        to, ssh = cast(Any, channel), self._ssh
        if to._send_buf or to._send_state != "open" or not ssh._kex_complete:
            return 0
        sealer = self._sealer
        if sealer is None or sealer.encryption is not ssh._send_encryption:
            if not isinstance(ssh._send_encryption, GCMEncryption):
                return 0
            sealer = self._sealer = _Key(ssh._send_encryption)
        sizes: list[int] = []
        left, window = len(view), to._send_window
        room = ssh._rekey_bytes - ssh._rekey_bytes_sent
        while left and window > 0 and room > 0 and len(sizes) < _AT_ONCE:
            size = min(left, window, to._send_pktsize, LARGEST - 64)
            sizes.append(size)
            left, window, room = left - size, window - size, room - size
        if not sizes:
            return 0
        out = memoryview(bytearray(sum(LENGTH + _padded(size) + TAG for size in sizes)))
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
        self, sealer: _Key, channel: int, data: memoryview, padding: bytes, out: memoryview
    ) -> int:
        """Seal one packet; how many bytes it has."""
        ssh, length = self._ssh, len(data)
        size = _padded(length)
        end = _HEAD + length
        plain = self._sealing[:size]
        _HEADER.pack_into(plain, 0, size - end, _DATA, channel, length)
        plain[_HEAD:end] = data
        plain[end:] = padding[: size - end]
        out[:LENGTH] = head = size.to_bytes(LENGTH, "big")
        end = LENGTH + size + TAG
        sealer.aes.encrypt_into(sealer.cipher._iv, plain, head, out[LENGTH:end])
        sealer.cipher._update_iv()
        ssh._send_seq = (ssh._send_seq + 1) & 0xFFFFFFFF
        ssh._rekey_bytes_sent += size
        return end


def _padded(length: int) -> int:
    """How many bytes are sealed of a packet with so many bytes of data: whole blocks."""
    padding = -(_HEAD + length) % _BLOCK
    return _HEAD + length + padding + (_BLOCK if padding < _LEAST_PADDING else 0)


def gcm_packets(
    connection: asyncssh.SSHClientConnection, reader: type[Reader]
) -> GcmPackets | None:
    """Those of a connection that is logged in; None where it, or asyncssh, is not as it is known here."""
    ssh = cast(Any, connection)
    ciphers = [getattr(ssh, name, None) for name in ("_recv_encryption", "_send_encryption")]
    if (
        all(hasattr(ssh, name) for name in OF_CONNECTIONS)
        and all(isinstance(each, GCMEncryption) for each in ciphers)
        and all(hasattr(each._cipher, name) for each in cast(Any, ciphers) for name in OF_CIPHERS)
        and hasattr(AESGCM, "decrypt_into")
        and not ssh._compressor
        and not ssh._decompressor
    ):
        return GcmPackets(connection, reader)
    return None


def is_known_channel(channel: object) -> bool:
    """Whether a channel is as it is known here; where it is not, asyncssh moves its data."""
    return all(hasattr(channel, name) for name in OF_CHANNELS)


# ── what a connection hears of its transport ────────────────────────────────────────────


def transport_of(connection: asyncssh.SSHClientConnection) -> Any:
    """The transport that a connection's bytes go over; None once it is closed."""
    return cast(Any, connection)._transport


def is_tunnelled(connection: asyncssh.SSHClientConnection) -> bool:
    """Whether a connection goes over a channel of another one."""
    return isinstance(transport_of(connection), SSHChannel)


def heed_transport(
    connection: asyncssh.SSHClientConnection,
    *,
    full: Callable[[], None],
    room: Callable[[], None],
    came: Callable[[bytes, asyncssh.DataType], None],
) -> Callable[[bytes, asyncssh.DataType], None]:
    """Have these called when the transport is full, when it has room, and with what came.

    asyncssh heeds neither of the first two. Returns what takes in what came.
    """
    hooks = cast(Any, connection)
    hooks.pause_writing = full
    hooks.resume_writing = room
    takes_in = connection.data_received
    hooks.data_received = came
    return takes_in


# ── OpenSSH's config, and host keys ─────────────────────────────────────────────────────

Config = SSHConfig
"""What `read_config` gives: `get(word, default)` is what OpenSSH's config says."""


def read_config(
    files: Sequence[str], own_name: str, user: str | None, host: str, port: int | None
) -> Config:
    """What these files say of a host.

    Raises `asyncssh.ConfigParseError` for what OpenSSH would not take, and OSError.
    """
    return SSHClientConfig.load(
        None, list(files), False, False, False, own_name, user or (), host, port or ()
    )


def certificate_algorithms() -> list[bytes]:
    """The algorithms of certified host keys that asyncssh asks for by itself."""
    return [*get_default_certificate_algs()]


def key_algorithms() -> list[bytes]:
    """The algorithms of host keys that asyncssh asks for by itself."""
    return [*get_default_public_key_algs()]
