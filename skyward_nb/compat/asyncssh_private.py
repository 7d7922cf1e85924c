"""asyncssh's private names: packets that are sent on a connection, what it hears of its transport, its config.

Large data is sealed here with a connection's own key, with less work for each byte than asyncssh
takes: with fewer copies, and without the empty packet that asyncssh sends before each, against an
attack on CBC (RFC 4253, section 9.3.1), which GCM does not know. Key, nonces, counters and windows
stay asyncssh's own. A nonce used twice would give the key away, and nothing would be seen of it: so
the versions are bounded in `pyproject.toml`.

Measured by `tests/benchmarks/ssh_streams.py`, 256 MB in one stream beside `ssh host cat`, on loopback:
to a host, asyncssh's own streams reach 0.5 of its rate, for 2.1 s of CPU per GB; sealed here they reach
0.96 to 1.07, for 1.0 s. From a host, asyncssh's own reach 0.5 to 0.8; packets opened here came no
faster (0.4 to 0.5), so asyncssh opens what comes. At 60 ms both ways are bound by windows, not by work.

Where a name is missing, `gcm_sealer` is None and asyncssh does all of it. What is not of packets is
needed for any login, and raises AttributeError or ImportError.

Sources: RFC 4253, section 6 (binary packets), RFC 4254, section 5.2 (data of channels), RFC 5647,
section 7 (AES-GCM: the length is not encrypted; 16 bytes of tag come last).

Seen with asyncssh 2.24.0 and 2.24.1.
"""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import asyncssh
from asyncssh.channel import SSHChannel
from asyncssh.config import SSHClientConfig, SSHConfig
from asyncssh.encryption import GCMEncryption
from asyncssh.public_key import get_default_certificate_algs, get_default_public_key_algs
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

# ── packets ─────────────────────────────────────────────────────────────────────────────

_LARGEST = 256 << 10
"""Bytes of a packet that is sealed here."""
_LENGTH, _TAG = 4, 16
"""Bytes before what is sealed, and after it."""
_DATA = 94
"""SSH_MSG_CHANNEL_DATA."""
_BLOCK, _LEAST_PADDING = 16, 4
_HEADER = struct.Struct(">BBII")
"""The header before the data: the padding's length, the kind, the channel, the data's length."""
_HEAD = _HEADER.size
_AT_ONCE = 3
"""Packets that are written together: of more, memory is got from the system anew each time."""
OF_CONNECTIONS = {
    "_compressor", "_kex_complete", "_rekey_bytes", "_rekey_bytes_sent", "_send",
    "_send_encryption", "_send_seq",
}  # fmt: skip
OF_CHANNELS = {"_send_buf", "_send_chan", "_send_pktsize", "_send_state", "_send_window"}
OF_CIPHERS = {"_iv", "_key", "_update_iv"}


class _Key:
    """Seals packets with one key of a connection, as long as that is its key."""

    def __init__(self, encryption: GCMEncryption) -> None:
        self.encryption = encryption
        self.cipher: Any = cast(Any, encryption)._cipher
        self.aes: Any = AESGCM(self.cipher._key)


class GcmSealer:
    """Seals data of channels into packets of a connection that is encrypted with AES-GCM."""

    def __init__(self, connection: asyncssh.SSHClientConnection) -> None:
        self._ssh: Any = connection
        self._sealing = memoryview(bytearray(_LARGEST))
        self._key: _Key | None = None

    def send(self, channel: asyncssh.SSHUNIXChannel[bytes], view: memoryview) -> int:
        """Send what goes of this as data of a channel, in a few packets; how many bytes, 0: asyncssh has to."""
        to, ssh = cast(Any, channel), self._ssh
        if to._send_buf or to._send_state != "open" or not ssh._kex_complete:
            return 0
        key = self._key
        if key is None or key.encryption is not ssh._send_encryption:
            if not isinstance(ssh._send_encryption, GCMEncryption):
                return 0
            key = self._key = _Key(ssh._send_encryption)
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
            at += self._seal(key, to._send_chan, data, padding, out[at:])
            start += size
        to._send_window -= start
        ssh._send(out)
        return start

    def _seal(
        self, key: _Key, channel: int, data: memoryview, padding: bytes, out: memoryview
    ) -> int:
        """Seal one packet; how many bytes it has."""
        ssh, length = self._ssh, len(data)
        size = _padded(length)
        end = _HEAD + length
        plain = self._sealing[:size]
        _HEADER.pack_into(plain, 0, size - end, _DATA, channel, length)
        plain[_HEAD:end] = data
        plain[end:] = padding[: size - end]
        out[:_LENGTH] = head = size.to_bytes(_LENGTH, "big")
        end = _LENGTH + size + _TAG
        key.aes.encrypt_into(key.cipher._iv, plain, head, out[_LENGTH:end])
        key.cipher._update_iv()
        ssh._send_seq = (ssh._send_seq + 1) & 0xFFFFFFFF
        ssh._rekey_bytes_sent += size
        return end


def _padded(length: int) -> int:
    """The encrypted size of a packet with so many bytes of data: whole blocks."""
    padding = -(_HEAD + length) % _BLOCK
    return _HEAD + length + padding + (_BLOCK if padding < _LEAST_PADDING else 0)


def gcm_sealer(connection: asyncssh.SSHClientConnection) -> GcmSealer | None:
    """The one of a connection that is logged in; None where it, or asyncssh, is not as it is known here."""
    ssh = cast(Any, connection)
    encryption = getattr(ssh, "_send_encryption", None)
    if (
        all(hasattr(ssh, name) for name in OF_CONNECTIONS)
        and isinstance(encryption, GCMEncryption)
        and all(hasattr(cast(Any, encryption)._cipher, name) for name in OF_CIPHERS)
        and hasattr(AESGCM, "encrypt_into")
        and not ssh._compressor
    ):
        return GcmSealer(connection)
    return None


def is_known_channel(channel: object) -> bool:
    """Whether a channel is as it is known here; where it is not, asyncssh sends its data."""
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
"""The result of `read_config`: `get(word, default)` is the value in OpenSSH's config."""


def read_config(
    files: Sequence[str], own_name: str, user: str | None, host: str, port: int | None
) -> Config:
    """The config of a host in these files.

    Raises `asyncssh.ConfigParseError` for what OpenSSH would not take, and OSError.
    """
    return _load(_CommentedConfig, files, own_name, user, host, port)


def login_options(
    files: Sequence[str], own_name: str, user: str | None, host: str, port: int | None
) -> dict[str, object]:
    """The arguments of `asyncssh.connect` that give it the config of these files; raises as `read_config`.

    asyncssh reads them itself where it reads them as OpenSSH does: only then does it see to `Match final` and
    CanonicalizeHostname. The words of a comment behind a value it takes as more of the line's values.
    """
    ours = read_config(files, own_name, user, host, port)
    assert isinstance(ours, _CommentedConfig)
    if ours.has_comments:
        with contextlib.suppress(asyncssh.ConfigParseError):
            theirs = _load(SSHClientConfig, files, own_name, user, host, port)
            if not ours.has_misleading and theirs.get_options(False) == ours.get_options(False):
                return {"config": list(files)}
        own = asyncssh.SSHClientConnectionOptions(config=None)
        cast(Any, own).config = ours
        return {"options": own, "config": None}
    return {"config": list(files)}


def _load(
    kind: type[SSHConfig],
    files: Sequence[str],
    own_name: str,
    user: str | None,
    host: str,
    port: int | None,
) -> SSHConfig:
    return kind.load(None, list(files), False, False, False, own_name, user or (), host, port or ())


class _CommentedConfig(SSHClientConfig):
    """asyncssh's own takes comments only on lines of their own, and stumbles over an apostrophe in others."""

    has_comments: bool = False
    """Whether there was one behind a value."""
    has_misleading: bool = False
    """Whether one was where its words would choose other lines."""

    def parse(self, path: Path) -> None:
        """Parse a config file without the comments behind its values."""
        lines = path.read_text().split("\n")
        bare = [_without_comment(line) for line in lines]
        changed = [
            line for line, had in zip(bare, lines, strict=True) if line.strip() and line != had
        ]
        if not changed:
            super().parse(path)
            return
        self.has_comments = True
        self.has_misleading |= any(_keyword(line) in _CHOOSING for line in changed)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as plain:
            plain.write("\n".join(bare))
            plain.flush()
            super().parse(cast(Path, _Named(plain.name, path)))


class _Named:
    """A file that has the name of another one in messages."""

    def __init__(self, place: str, name: Path) -> None:
        self._place, self._name = place, name

    def __fspath__(self) -> str:
        return self._place

    def __str__(self) -> str:
        return str(self._name)


_CHOOSING = frozenset(("host", "match", "include"))
_WHOLE = frozenset(cast(Any, SSHClientConfig)._no_split)
"""The words whose value is the rest of the line, `#` included."""


def _keyword(line: str) -> str:
    """The word that a line begins with, in small letters."""
    return next(iter(line.replace("=", " ").split(maxsplit=1)), "").lower()


def _without_comment(line: str) -> str:
    """A line without the comment after its value, which begins with a word's `#` (OpenSSH's `argv_split`)."""
    if _keyword(line) in _WHOLE:
        return line
    quote, is_inside, escaped = "", False, False
    for at, letter in enumerate(line):
        if escaped:
            escaped = False
        elif letter == "\\":
            is_inside = escaped = True
        elif quote:
            quote = "" if letter == quote else quote
        elif letter == "#" and not is_inside:
            return line[:at]
        else:
            quote = letter if letter in "\"'" else ""
            is_inside = not letter.isspace()
    return line


def certificate_algorithms() -> list[bytes]:
    """The algorithms of certified host keys that asyncssh asks for by itself."""
    return [*get_default_certificate_algs()]


def key_algorithms() -> list[bytes]:
    """The algorithms of host keys that asyncssh asks for by itself."""
    return [*get_default_public_key_algs()]
