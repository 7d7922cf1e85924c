"""Messages as frames on a byte stream: 4 bytes of length, then one msgpack message.

No IO here: bytes in, messages out. Decoding validates; an invalid message is a `FrameError`: the
peer's fault or the line's, never the user's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

from skyward_nb.protocol.commands import Command
from skyward_nb.protocol.events import Event
from skyward_nb.words.decoding import msgpack_decoder
from skyward_nb.words.node_log_entry import NodeLogEntry

LARGEST = 1 << 30
_HEAD = 4

M = TypeVar("M")


class FrameError(Exception):
    """The peer sent bytes that are no message of this protocol."""


_encode = msgspec.msgpack.Encoder().encode


def frame(message: Command | Event | NodeLogEntry) -> bytes:
    """One message as bytes on the wire."""
    body = _encode(message)
    return len(body).to_bytes(_HEAD, "big") + body


class Cutter:
    """Cuts a stream at the ends of frames, without decoding them."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._have = 0
        self._need = 0

    def feed(self, data: bytes) -> bytes:
        """The frames that are complete now, as one piece; the rest is kept. Raises `FrameError`."""
        if self._parts:
            self._parts.append(data)
            self._have += len(data)
            if self._have < self._need:
                return b""
            data = b"".join(self._parts)
            self._parts.clear()
        end, size, need = 0, len(data), _HEAD
        while size - end >= _HEAD:
            length = int.from_bytes(data[end : end + _HEAD], "big")
            if length > LARGEST:
                raise FrameError(f"a frame of {length} bytes was announced")
            need = _HEAD + length
            if size - end < need:
                break
            end, need = end + need, _HEAD
        if end == size:
            return data
        self._parts.append(data[end:])
        self._have, self._need = size - end, need
        return data[:end]


class Frames(Generic[M]):
    """Cuts a stream into messages of one union."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[M]) -> None:
        self._decode = decoder.decode
        self._cutter = Cutter()

    def feed(self, data: bytes) -> list[M]:
        """Every message that is now complete; raises `FrameError`."""
        return [message for message, _ in self.feed_both(data)]

    def feed_both(self, data: bytes) -> Iterator[tuple[M, bytes]]:
        """Every message that is now complete, and its frame, to be passed on as it is."""
        whole = self._cutter.feed(data)
        at = 0
        while at < len(whole):
            end = at + _HEAD + int.from_bytes(whole[at : at + _HEAD], "big")
            try:
                message = self._decode(memoryview(whole)[at + _HEAD : end])
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise FrameError(str(error)) from error
            yield message, whole[at:end]
            at = end


def command_frames() -> Frames[Command]:
    """A decoder of commands."""
    return Frames(msgpack_decoder(Command))


def event_frames() -> Frames[Event]:
    """A decoder of events."""
    return Frames(msgpack_decoder(Event))


def node_frames() -> Frames[NodeLogEntry]:
    """A decoder of logs of machines."""
    return Frames(msgpack_decoder(NodeLogEntry))
