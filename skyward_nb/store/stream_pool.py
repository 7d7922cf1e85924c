"""The streams to one machine's agent: idle ones are used again, and messages without a reply are queued.

A queued message is sent on an idle stream, or before the next request. Its answer is taken before
anything else is sent, so that a value that was dropped is gone when it is asked for.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from collections import deque
from collections.abc import Callable, Generator

from skyward_nb.store.byte_streams import ByteStream
from skyward_nb.store.content_store import no_tick
from skyward_nb.store.value_messages import ANSWERS, Answer, DropValues, TrimStore
from skyward_nb.store.value_stream import ValueStream

MOST_STREAMS = 16
_TICK = 0.1
"""Seconds between two looks for a stream that is given back."""
AgentStream = ValueStream[Answer]


class StreamPool:
    """Streams that `connect` opens, each used by one thread at a time; it raises EBUSY where there may be no more."""

    def __init__(self, connect: Callable[[], socket.socket | ByteStream]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._given_back = threading.Condition(self._lock)
        self._order = threading.Lock()
        """Held while a queued message is sent, or its answer taken."""
        self._idle: list[AgentStream] = []
        self._unsent: deque[DropValues | TrimStore] = deque()
        self._is_closed = False

    def stream(self, tick: Callable[[], None]) -> contextlib.AbstractContextManager[AgentStream]:
        """A stream of one's own, with nothing on it; one that is left by an exception is closed.

        Raises OSError.
        """
        return self._lent(self._taken(tick), tick)

    @contextlib.contextmanager
    def _lent(self, stream: AgentStream, tick: Callable[[], None]) -> Generator[AgentStream]:
        stream.tick = tick
        try:
            yield stream
        except BaseException:
            self._abandon(stream)
            raise
        stream.tick = no_tick
        self._give_back(stream)

    def _taken(self, tick: Callable[[], None]) -> AgentStream:
        while not self._order.acquire(timeout=_TICK):
            tick()  # another thread may wait for long
        try:
            while (owing := self._owing()) is not None:
                with contextlib.suppress(OSError), self._lent(owing, tick):
                    owing.settle()
            stream = self._rested() or self._connected(tick)
            if not self._unsent:
                return stream
            stream.tick = tick
            try:
                while self._unsent:
                    stream.post(self._unsent.popleft())
                stream.settle()
            except BaseException:
                self._abandon(stream)
                raise
            return stream
        finally:
            self._order.release()

    def _connected(self, tick: Callable[[], None]) -> AgentStream:
        """A new stream; where there may be no more (EBUSY), the next one that another thread gives back."""
        while True:
            try:
                return ValueStream(self._connect(), ANSWERS)
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
            tick()
            with self._given_back:
                self._given_back.wait_for(lambda: self._idle, _TICK)
            if (stream := self._rested()) is not None:
                return stream

    def has_several(self, tick: Callable[[], None]) -> bool:
        """Whether there may be two streams at the same time, as far as is seen now."""
        with (
            contextlib.suppress(OSError),
            self.stream(tick),
        ):  # the next caller finds it, too
            try:
                if not self._idle:
                    self._give_back(ValueStream(self._connect(), ANSWERS))
            except OSError:  # EBUSY, for one
                return False
            return True
        return False

    def _abandon(self, stream: AgentStream) -> None:
        """Close a stream; queued messages whose answer was not taken are sent again, before what comes next."""
        self._unsent.extendleft(reversed(stream.owed))
        stream.close()

    def _owing(self) -> AgentStream | None:
        """An idle stream on which an answer was not taken."""
        with self._lock:
            for stream in self._idle:
                if stream.owed:
                    self._idle.remove(stream)
                    return stream
        return None

    def _rested(self) -> AgentStream | None:
        """An idle stream; those that the agent has closed meanwhile are closed here, too."""
        with self._lock:
            while self._idle:
                stream = self._idle.pop()
                if stream.owed or not stream.has_more():
                    return stream
                stream.close()
        return None

    def _give_back(self, stream: AgentStream) -> None:
        with self._lock:
            if not self._is_closed and len(self._idle) < MOST_STREAMS:
                self._idle.append(stream)
                self._given_back.notify()
                return
        stream.close()

    def post(self, message: DropValues | TrimStore) -> None:
        """Send a message without waiting for the answer: now, or before the next request."""
        if not self._order.acquire(blocking=False):
            self._unsent.append(message)  # another thread waits for an answer, which may take long
            return
        try:
            if (stream := self._rested()) is None:
                self._unsent.append(message)
                return
            try:
                stream.post(message)
            except OSError:
                self._abandon(stream)
            else:
                self._give_back(stream)
        finally:
            self._order.release()

    def hang_up(self) -> None:
        """Close the idle streams: one was lost, and they may be, too."""
        with self._lock:
            streams, self._idle = self._idle, []
            # At once: whoever takes a stream next must find what is to be said on it first.
            for stream in streams:
                self._unsent.extendleft(reversed(stream.owed))
        for stream in streams:
            stream.close()

    def close(self) -> None:
        """Close the idle streams, and the others when they are given back."""
        self._is_closed = True
        self.hang_up()
