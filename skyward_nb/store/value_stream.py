"""One stream on which values come and go: messages and bytes, waited for without being deaf to the rest."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

from skyward_nb.store.blobs import Buffer
from skyward_nb.store.byte_streams import ByteStream, PushReceiver, SocketStream
from skyward_nb.store.content_store import no_tick
from skyward_nb.store.value_messages import (
    HEAD,
    LARGEST,
    Answer,
    Ask,
    BytesFollow,
    BytesStored,
    DropValues,
    FolderFound,
    FolderUpdated,
    MissingContents,
    MissingRanges,
    PeersAdmitted,
    SpreadFailures,
    TrimStore,
    ValuePacked,
    ValueRefused,
    framed,
)

M = TypeVar("M", Ask, Answer)
A = TypeVar(
    "A",
    BytesStored,
    MissingRanges,
    BytesFollow,
    PeersAdmitted,
    SpreadFailures,
    MissingContents,
    FolderFound,
    FolderUpdated,
    ValuePacked,
)
_TICK = 100
_SMALL = 64 << 10
_STEP = 1 << 20
_RECORDS = 1 << 18


class StreamLost(OSError):
    """The other end has hung up, or sent bytes that are no message."""


class StoreRefused(Exception):
    """The machine refuses a request; `code` is an `errno`."""

    def __init__(self, refused: ValueRefused) -> None:
        super().__init__(refused.why)
        self.code: int = refused.code


class ValueStream(Generic[M]):
    """Messages and bytes over a connection whose other end sends messages `M`.

    `tick` is called while it waits. After `patience` seconds without a byte either way it is lost.
    """

    def __init__(
        self, connection: socket.socket | ByteStream, decoder: msgspec.msgpack.Decoder[M]
    ) -> None:
        is_socket = isinstance(connection, socket.socket)
        self._way: ByteStream = SocketStream(connection) if is_socket else connection
        self._decoder = decoder
        self.tick: Callable[[], None] = no_tick
        self.patience: float | None = None
        self.owed: deque[DropValues | TrimStore] = deque()
        """Posted messages whose answer was not taken."""

    def post(self, message: DropValues | TrimStore) -> None:
        """Send a message whose answer is taken by `settle`; it is owed, too, where it cannot be sent."""
        self.owed.append(message)
        self.say(message)

    def settle(self) -> None:
        """Take the answers to posted messages; raises `StreamLost`."""
        while self.owed:
            self.hear()
            self.owed.popleft()

    def say(self, message: Ask | Answer, parts: Iterable[Buffer] = ()) -> None:
        """Send a message, and these bytes behind it; small ones in one piece with it."""
        small = bytearray(framed(message))
        for part in parts:
            view = memoryview(part).cast("B")
            if len(small) + view.nbytes <= _SMALL:
                small += view
                continue
            self._send(memoryview(small))
            small = bytearray()
            self._send(view)
        if small:
            self._send(memoryview(small))

    def _send(self, view: memoryview) -> None:
        while view:
            if sent := self._way.send(view[:_STEP]):
                view = view[sent:]
            else:
                self._wait(self._way.wait_to_send)
            self.tick()

    def send_file(self, handle: int, offset: int, length: int) -> None:
        """Send bytes of a file behind a message."""
        way = self._way
        if not isinstance(way, SocketStream) or way.is_tls:
            end = offset + length
            for at in range(offset, end, _STEP):
                data = os.pread(handle, min(_STEP, end - at), at)
                if len(data) < min(_STEP, end - at):
                    raise StreamLost("a value has fewer bytes than it had")
                self._send(memoryview(data))
            return
        while length:
            try:
                sent = os.sendfile(way.socket.fileno(), handle, offset, min(length, _STEP))
            except BlockingIOError:
                self._wait(way.wait_to_send)
            else:
                if not sent:
                    raise StreamLost("a value has fewer bytes than it had")
                offset, length = offset + sent, length - sent
            self.tick()

    def hear(self) -> M:
        """The next message; raises `StreamLost`."""
        head = bytearray(HEAD)
        self.take(memoryview(head))
        size = int.from_bytes(head, "big")
        if size > LARGEST:
            raise StreamLost(f"a message of {size} bytes was announced")
        body = bytearray(size)
        self.take(memoryview(body))
        try:
            return self._decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise StreamLost(f"what came is not a message: {error}") from error

    def take(self, view: memoryview) -> None:
        """Fill memory with what comes; raises `StreamLost`."""
        while view:
            view = view[self.take_some(view) :]

    def pieces(
        self, offset: int, length: int, room: memoryview
    ) -> Iterator[tuple[int, memoryview]]:
        """Bytes that come behind a message, in pieces in `room`: where each belongs, and it."""
        end = offset + length
        way = self._way
        while offset < end:
            piece = room[: min(len(room), end - offset)]
            if isinstance(way, SocketStream) and way.is_tls:
                # It gives a record at a time, which is little to do something with.
                piece = piece[:_RECORDS]
                self.take(piece)
            else:
                piece = piece[: self.take_some(piece)]
            yield offset, piece
            offset += len(piece)

    def pour(
        self,
        offset: int,
        length: int,
        room: memoryview,
        into: Callable[[int, memoryview], None],
        *,
        may_wait: bool = False,
    ) -> None:
        """Hand over bytes that come behind a message, each piece with where it belongs, by way of `room`.

        Where it can be, that is done on the thread on which they come, unless `into` may have to wait.
        Raises what `into` raises.
        """
        if may_wait or not isinstance(self._way, PushReceiver):
            for at, piece in self.pieces(offset, length, room):
                into(at, piece)
            return
        at = offset

        def take(piece: memoryview) -> None:
            nonlocal at
            into(at, piece)
            at += len(piece)

        try:
            self._way.pour(length, take)
            while not self._way.has_poured():
                self._wait(self._way.wait_to_pour)
                self.tick()
        except BaseException:
            # Nothing is handed over any more to who does not wait for it.
            self.close()
            raise

    def take_some(self, view: memoryview) -> int:
        """Put what comes next into memory; how many bytes that were. Raises `StreamLost`."""
        while (count := self._way.receive(view)) is None:
            self._wait(self._way.wait_to_receive)
            self.tick()
        if not count:
            raise StreamLost("the other end has hung up")
        self.tick()
        return count

    def _wait(self, wait: Callable[[float | None], bool]) -> None:
        """Wait until there is something to do; raises `StreamLost` where nothing comes of it."""
        began = time.monotonic()
        while not wait(self._slice()):
            self.tick()
            if self.patience is not None and time.monotonic() - began > self.patience:
                raise StreamLost(f"nothing came or went for {self.patience:g} s")

    def _slice(self) -> float | None:
        """Milliseconds to wait at a time: without end if nothing is to be done meanwhile."""
        if self.tick is not no_tick:
            return _TICK
        return None if self.patience is None else 1000 * self.patience

    def has_more(self) -> bool:
        """Whether something has come that was not taken, or the other end has hung up."""
        return self._way.has_more()

    def close(self) -> None:
        """Hang up."""
        self._way.close()


def request(
    stream: ValueStream[Answer], ask: Ask, kind: type[A], parts: Iterable[Buffer] = ()
) -> A:
    """Send a request, with these bytes behind it, and take its answer, as `answer`."""
    stream.say(ask, parts)
    return answer(stream, kind)


def answer(stream: ValueStream[Answer], kind: type[A]) -> A:
    """The next answer; raises `StoreRefused`, and `StreamLost` if it has another type."""
    found = stream.hear()
    if isinstance(found, ValueRefused):
        raise StoreRefused(found)
    if not isinstance(found, kind):
        raise StreamLost(f"it answered with {type(found).__name__}")
    return found
