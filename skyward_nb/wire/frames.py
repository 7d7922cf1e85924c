"""Messages as frames on a byte stream: 4 bytes of length, then one msgpack message.

No IO here: bytes in, messages out. Decoding validates; what does not fit is a `FrameError`,
always the peer's fault or the line's, never the user's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

from skyward_nb.words.messages import Command, Event

LARGEST = 1 << 30
_HEAD = 4

M = TypeVar("M")


class FrameError(Exception):
    """The peer sent bytes that are no message of this protocol."""


_encode = msgspec.msgpack.Encoder().encode


def frame(message: Command | Event) -> bytes:
    """One message as bytes on the wire."""
    body = _encode(message)
    return len(body).to_bytes(_HEAD, "big") + body


class Frames(Generic[M]):
    """Cuts a stream into messages of one union; `feed` what arrives, iterate what is whole."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[M]) -> None:
        self._decoder = decoder
        self._buffer = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[M]:
        """Add bytes and yield every message that is now complete.

        Raises `FrameError` for a length or a body that cannot be one of ours.
        """
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while len(buffer) - at >= _HEAD:
                size = int.from_bytes(buffer[at : at + _HEAD], "big")
                if size > LARGEST:
                    raise FrameError(f"a frame of {size} bytes was announced")
                if len(buffer) - at - _HEAD < size:
                    break
                start, at = at + _HEAD, at + _HEAD + size
                try:
                    message = self._decoder.decode(bytes(buffer[start:at]))
                except msgspec.MsgspecError as error:
                    raise FrameError(str(error)) from error
                yield message
        finally:
            del buffer[:at]


def command_frames() -> Frames[Command]:
    """A cutter for the way down."""
    return Frames(msgspec.msgpack.Decoder(Command))


def event_frames() -> Frames[Event]:
    """A cutter for the way up."""
    return Frames(msgspec.msgpack.Decoder(Event))
