"""A large value on its way, in pieces, over any number of streams: `Upload` and `Download`.

Either is called with each stream, on a thread of its own, until nothing is left to move. When a
stream is lost, what has arrived stays.
"""

from __future__ import annotations

import errno
import threading
from collections import deque
from collections.abc import Callable, Iterable

from skyward_nb.store.blobs import CorruptValue
from skyward_nb.store.private_memory import PrivateMemory
from skyward_nb.store.reassembly import Reassembly
from skyward_nb.store.receive_window import ReceiveWindow, RequestedBytes
from skyward_nb.store.stream_pool import AgentStream
from skyward_nb.store.value_messages import (
    BytesFollow,
    BytesStored,
    FetchBytes,
    Span,
    StoreBytes,
    ValueRefused,
    pieces,
)
from skyward_nb.store.value_source import ValueSource
from skyward_nb.store.value_stream import StoreRefused, answer

AT_ONCE = 1 << 20
"""Bytes of an outgoing value per message, and of an incoming value in the first request."""
LEAST_PIECE = 1 << 20
_PIECE = 4 << 20
_ROOM = 1 << 20
_AHEAD = 4
"""Pieces that a stream may be ahead of their answers."""


class Upload:
    """Sends the `missing` spans of a value over `streams` streams; `moved` gets the bytes of each piece."""

    def __init__(
        self,
        digest: str,
        source: ValueSource,
        missing: Iterable[Span],
        streams: int,
        moved: Callable[[int], None],
    ) -> None:
        self._digest = digest
        self._source = source
        # So large that each stream has several.
        size = max(LEAST_PIECE, min(_PIECE, source.size // (streams * _AHEAD)))
        self._spans = iter(list(pieces(missing, size)))  # shared by the streams
        self._moved = moved
        self.done: int = 0
        """Pieces that were stored."""
        self.stored: BytesStored | None = None
        """The answer that all of it is there."""

    def __call__(self, stream: AgentStream) -> None:
        """Send pieces over this stream until there are no more."""
        unanswered: deque[int] = deque()
        for start, stop in self._spans:
            message = StoreBytes(self._digest, self._source.size, start, stop - start)
            stream.say(message, self._source.views(start, stop, stream.tick))
            unanswered.append(stop - start)
            while len(unanswered) > _AHEAD or (unanswered and stream.has_more()):
                self._hear(stream, unanswered.popleft())
        while unanswered:
            self._hear(stream, unanswered.popleft())

    def _hear(self, stream: AgentStream, size: int) -> None:
        found = answer(stream, BytesStored)
        self.done += 1
        self._moved(size)
        if found.is_whole:
            self.stored = found


class Download:
    """Fetches a value; the first piece tells its size. `moved` gets the number of bytes as they come."""

    def __init__(self, digest: str, window: ReceiveWindow, moved: Callable[[int], None]) -> None:
        self._digest = digest
        self._window = window
        self._moved = moved
        self._lock = threading.Lock()
        self._memory: PrivateMemory | None = None
        self._arrived: Reassembly | None = None
        self._spans: deque[Span] = deque()
        self._parts = _AHEAD
        self.done: int = 0
        """Pieces that came since `begin`."""

    @property
    def missing(self) -> int:
        """Bytes that are to come, as far as is known."""
        return AT_ONCE if self._arrived is None else self._arrived.missing.size

    def has_all(self) -> bool:
        """Whether nothing is missing."""
        return self._arrived is not None and self._arrived.has_all()

    def take(self) -> PrivateMemory:
        """All of the value, which the caller is to close; raises `CorruptValue`."""
        assert self._memory is not None
        assert self._arrived is not None
        if self._arrived.digest() != self._digest:
            raise CorruptValue("its bytes in the store are not those that were packed")
        memory, self._memory = self._memory, None
        return memory

    def close(self) -> None:
        """Free what has come, unless it was taken."""
        if self._memory is not None:
            self._memory.close()

    def begin(self, streams: int) -> None:
        """Fetch what is missing over so many streams from now on."""
        self._spans = deque(self._arrived.missing if self._arrived else [(0, AT_ONCE)])
        self._parts = streams * _AHEAD
        self.done = 0

    def __call__(self, stream: AgentStream) -> None:
        """Fetch pieces over this stream until there are no more."""
        asked: deque[tuple[Span, RequestedBytes]] = deque()
        room = memoryview(bytearray(_ROOM))
        try:
            while self._ask(stream, asked):
                self._hear(stream, *asked[0], room)
                asked.popleft()
        finally:
            for _, each in asked:
                self._window.gone(each)

    def _ask(self, stream: AgentStream, asked: deque[tuple[Span, RequestedBytes]]) -> bool:
        """Ask for as much as the window allows; whether something is to come."""
        while len(asked) < _AHEAD and self._spans:
            if (taken := self._next()) is not None:
                asked.append(taken)
                (start, stop), _ = taken
                stream.say(FetchBytes(self._digest, start, stop - start))
            elif asked:
                break
            else:
                self._window.wait(stream.tick)
        return bool(asked)

    def _next(self) -> tuple[Span, RequestedBytes] | None:
        """The next bytes, if the window allows some."""
        with self._lock:
            if not self._spans:
                return None
            # It stays there while the window is asked: a stream that sees no span ends.
            start, stop = self._spans[0]
            asked = self._window.ask(min(_PIECE, stop - start), self._parts)
            if asked is None:
                return None
            middle = start + asked.left
            if middle < stop:
                self._spans[0] = (middle, stop)
            else:
                self._spans.popleft()
            return (start, middle), asked

    def _hear(
        self, stream: AgentStream, span: Span, asked: RequestedBytes, room: memoryview
    ) -> None:
        start, stop = span
        found = answer(stream, BytesFollow)
        self._window.answered(asked)
        memory, arrived = self._room_for(found.size)
        # What was asked for before the size was known may be beyond the end.
        length = max(0, min(stop, found.size) - start)
        if found.length != length or found.size != arrived.size:
            raise StoreRefused(ValueRefused(errno.ENOENT, "a value has fewer bytes than it had"))
        self._window.shrink(asked, length)

        def into(at: int, data: memoryview) -> None:
            memory.write(at, data)
            arrived.came(at, data)
            self._window.has_come(asked, len(data))
            self.done += 1
            self._moved(len(data))

        # A disk may be slow, and the connection's own thread must not wait for it.
        stream.pour(start, length, room, into, may_wait=not memory.is_in_memory)

    def _room_for(self, size: int) -> tuple[PrivateMemory, Reassembly]:
        """Room for a value of this size, and what has come of it."""
        if self._memory is None or self._arrived is None:
            self._memory = PrivateMemory(size)
            self._arrived = Reassembly(size, self._memory.read)
            self._spans = deque((at, min(end, size)) for at, end in self._spans if at < size)
        return self._memory, self._arrived
