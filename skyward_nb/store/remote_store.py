"""The content store of a machine elsewhere, by way of streams to its agent.

What is small goes in one message; what is large in ranges, over several streams where the way is
long; no more of it comes at a time than leaves room for words. A stream that is lost is opened anew,
and ranges that have come stay. What was fetched is verified once, and kept here until it is dropped.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Protocol, TypeVar

from skyward_nb.store.blobs import Buffer, CorruptValue
from skyward_nb.store.byte_streams import ByteStream
from skyward_nb.store.content_store import no_tick
from skyward_nb.store.private_memory import PrivateMemory
from skyward_nb.store.reassembly import Reassembly
from skyward_nb.store.receive_window import ReceiveWindow, RequestedBytes
from skyward_nb.store.value_messages import (
    ANSWERS,
    Address,
    AdmitPeers,
    Answer,
    Ask,
    BytesFollow,
    BytesStored,
    DropValues,
    FetchBytes,
    MissingQuery,
    MissingRanges,
    PeersAdmitted,
    PoolKey,
    Span,
    SpreadBranch,
    SpreadFailures,
    SpreadValue,
    StoreBytes,
    TrimStore,
    ValueRefused,
    pieces,
)
from skyward_nb.store.value_stream import StreamLost, ValueStream
from skyward_nb.system.concurrency import run_concurrently

T = TypeVar("T")
A = TypeVar("A", BytesStored, MissingRanges, BytesFollow, PeersAdmitted, SpreadFailures)
_AT_ONCE = 1 << 20
_PIECE = 4 << 20
_LEAST_PIECE = 1 << 20
_ROOM = 1 << 20
_AHEAD = 4
"""Pieces that a stream may be ahead of their answers."""
_WINDOW = 2 << 20
_RATE = 512 << 20
"""Bytes a second that streams of so many bytes on their way shall reach together."""
_MOST_STREAMS = 16
_NEAR = 0.002
_AGAIN = 0.25

Line = ValueStream[Answer]


class StoreRefused(Exception):
    """The machine says that it cannot do what it is asked for; the number of an `errno`, and why."""

    def __init__(self, refused: ValueRefused) -> None:
        super().__init__(refused.why)
        self.code: int = refused.code


class RemoteStore:
    """A `ContentStore` over streams that `open_stream` opens, from any thread.

    What it raises as OSError is tried again for `patience` seconds in which nothing comes on, and is
    a `TimeoutError` then; `AgentGone` is passed on. `name` is the machine's.
    """

    def __init__(
        self,
        open_stream: Callable[[], socket.socket | ByteStream],
        patience: float = 60.0,
        name: str = "",
    ) -> None:
        self.name: str = name
        self._open_stream = open_stream
        self.patience: float = patience
        self._lock = threading.Lock()
        self._order = threading.Lock()
        self._idle: list[Line] = []
        self.ahead: ReceiveWindow = ReceiveWindow()
        """How much is asked for before it comes, by what is known of the line."""
        self.moved: int = 0
        """Bytes of large values that went there or came from there, ever."""
        self._on_disk: dict[str, bool] = {}
        self._here: dict[str, PrivateMemory] = {}
        self._unsaid: list[DropValues | TrimStore] = []
        self._closed = False

    # ── as a store ──────────────────────────────────────────────────────────────────────

    def put(self, digest: str, parts: Sequence[Buffer], tick: Callable[[], None] = no_tick) -> bool:
        """Have a value there, all or nothing; whether it was not there before.

        Raises OSError: ENOSPC where there is no room, ETIMEDOUT where there is no way; and
        `CorruptValue` where the bytes that came do not have the digest.
        """
        return self._given(digest, ValueParts(parts), tick)

    def _given(self, digest: str, source: ValueSource, tick: Callable[[], None]) -> bool:
        with _refusals():
            kept = self._put(digest, source, tick)
        self._on_disk[digest] = kept.on_disk
        return kept.is_new

    def on_disk(self, digest: str) -> bool:
        """Whether a value that was put had to go to disk."""
        return self._on_disk.get(digest, False)

    def fetch(self, digests: Collection[str], tick: Callable[[], None] = no_tick) -> None:
        """Bring values here; those that are not there are left out. Raises OSError."""
        for digest in digests:
            with contextlib.suppress(CorruptValue):
                self._brought(digest, tick)

    def map(self, digest: str) -> memoryview:
        """A value's bytes, private to the caller; raises `CorruptValue`, or OSError."""
        while True:
            here = self._brought(digest, no_tick)
            with self._lock:
                if self._here.get(digest) is here:  # else it was dropped just now
                    return here.map()

    def drop(self, digests: Collection[str]) -> None:
        """Forget these values, there and here."""
        for digest in digests:
            self._on_disk.pop(digest, None)
            with self._lock:
                here = self._here.pop(digest, None)
                if here is not None:
                    here.close()
        if digests:
            self._later(DropValues(tuple(digests)))

    def trim(self, needed: Collection[str]) -> None:
        """Forget the least recently used of the values not `needed`, beyond the spare room there."""
        self._later(TrimStore(tuple(needed)))

    def close(self) -> None:
        """Hang up, and let go of what was fetched."""
        with self._lock:
            self._closed = True
            lines, self._idle = self._idle, []
            while self._here:
                self._here.popitem()[1].close()
        for line in lines:
            line.close()

    # ── values that go ──────────────────────────────────────────────────────────────────

    def _put(self, digest: str, source: ValueSource, tick: Callable[[], None]) -> BytesStored:
        size = source.size
        if size <= _AT_ONCE:
            whole = StoreBytes(digest, size, 0, size)
            return self._tried(
                lambda line: _ask(line, whole, BytesStored, source.views(0, size, tick)), tick
            )
        lacks = self._tried(lambda line: self._timed(line, MissingQuery(digest, size)), tick)
        if not lacks.spans:
            return BytesStored(is_whole=True, on_disk=lacks.on_disk)
        try:
            return self._put_large(digest, source, lacks, tick)
        except BaseException:
            # It may have come there nevertheless.
            self.drop([digest])
            raise

    def _put_large(
        self, digest: str, source: ValueSource, lacks: MissingRanges, tick: Callable[[], None]
    ) -> BytesStored:
        size = source.size
        patience = _Patience(self.patience, self.name)
        while lacks.spans:
            many = self._streams(sum(stop - start for start, stop in lacks.spans))
            going = _Going(digest, source, pieces(lacks.spans, _piece(size, many)), self._tell)
            lost = self._done(going, many, tick)
            if going.last is not None:
                return going.last
            if lost is not None:
                patience.rest(lost, tick, came_on=going.done)
            lacks = self._tried(lambda line: self._timed(line, MissingQuery(digest, size)), tick)
        return BytesStored(is_whole=True, is_new=True, on_disk=lacks.on_disk)

    def _tell(self, size: int) -> None:
        with self._lock:
            self.moved += size

    def _timed(self, line: Line, lack: MissingQuery) -> MissingRanges:
        """What is lacking there; how long such an answer takes tells the delay."""
        began = time.monotonic()
        found = _ask(line, lack, MissingRanges)
        self.ahead.took(time.monotonic() - began)
        return found

    def _streams(self, size: int) -> int:
        """Over how many streams so many bytes go: one where the way is short."""
        delay = self.ahead.delay
        if delay < _NEAR:
            return 1
        fill = int(delay * _RATE / _WINDOW) + 1
        return max(1, min(fill, _MOST_STREAMS, size // _LEAST_PIECE))

    # ── values that go on from there ────────────────────────────────────────────────────

    def meet(
        self, key: PoolKey, hosts: tuple[str, ...], tick: Callable[[], None]
    ) -> tuple[Address, ...]:
        """Have the machine take others that have this key, at these addresses; where. Raises OSError."""
        with _refusals():
            ask = AdmitPeers(self.name, key, hosts)
            return self._tried(lambda line: _ask(line, ask, PeersAdmitted), tick).addresses

    def lacks(self, digest: str, size: int, tick: Callable[[], None]) -> bool:
        """Whether a value, or a part of it, is not there; raises OSError, as where there is no room."""
        with _refusals():
            found = self._tried(lambda line: self._timed(line, MissingQuery(digest, size)), tick)
        self._on_disk[digest] = found.on_disk
        return bool(found.spans)

    def spread(
        self, digest: str, size: int, branches: tuple[SpreadBranch, ...], tick: Callable[[], None]
    ) -> dict[str, str]:
        """Have the machine give a value on as it comes; which machines did not get it, and why."""
        if not branches:
            return {}
        try:
            with self._line(tick) as line:
                return _ask(line, SpreadValue(digest, size, branches), SpreadFailures).machines
        except (OSError, StoreRefused) as error:
            names = [name for branch in branches for name in branch.names()]
            return dict.fromkeys(names, str(error))

    def pass_on(
        self,
        digest: str,
        source: ValueSource,
        branches: tuple[SpreadBranch, ...],
        tick: Callable[[], None],
    ) -> dict[str, str]:
        """Have a value there, and on machines that get it from there, as `spread`. Raises as `put`."""
        lacking: dict[str, str] = {}

        def give(tick: Callable[[], None]) -> None:
            self._given(digest, source, tick)

        def spread(tick: Callable[[], None]) -> None:
            lacking.update(self.spread(digest, source.size, branches, tick))

        run_concurrently([give, spread] if branches else [give], tick)
        return lacking

    # ── values that come ────────────────────────────────────────────────────────────────

    def _brought(self, digest: str, tick: Callable[[], None]) -> PrivateMemory:
        with self._lock:
            if (here := self._here.get(digest)) is not None:
                return here
        with _refusals():
            here = self._fetched(digest, tick)
        with self._lock:
            known = self._here.setdefault(digest, here)
        if known is not here:
            here.close()
        return known

    def _fetched(self, digest: str, tick: Callable[[], None]) -> PrivateMemory:
        coming = _Coming(digest, self.ahead, self._tell)
        patience = _Patience(self.patience, self.name)
        many = 1
        try:
            while not coming.has_all():
                coming.begin(many)
                if (lost := self._done(coming, many, tick)) is not None:
                    patience.rest(lost, tick, came_on=coming.done)
                # One stream is enough for what a window of it holds.
                many = min(self._streams(coming.missing), 1 + self.ahead.most // _WINDOW)
            return coming.whole()
        except CorruptValue:
            self.drop([digest])
            raise
        finally:
            coming.close()

    # ── streams ─────────────────────────────────────────────────────────────────────────

    def _tried(self, work: Callable[[Line], T], tick: Callable[[], None]) -> T:
        """Do something over one stream; over another one when it is lost."""
        patience = _Patience(self.patience, self.name)
        while True:
            try:
                with self._line(tick) as line:
                    return work(line)
            except OSError as error:
                self._hang_up()
                patience.rest(error, tick)

    def _done(
        self, work: Callable[[Line], None], many: int, tick: Callable[[], None]
    ) -> OSError | None:
        """Do work over so many streams side by side; how one was lost, if one was."""
        lost: list[OSError] = []

        def go(tick: Callable[[], None]) -> None:
            try:
                with self._line(tick) as line:
                    work(line)
            except OSError as error:
                lost.append(error)
                self._hang_up()

        run_concurrently([go] * many, tick)
        return lost[0] if lost else None

    @contextlib.contextmanager
    def _line(self, tick: Callable[[], None]) -> Generator[Line]:
        """A stream for one's own, with nothing on it; one that is left in the middle is hung up on."""
        line = self._taken(tick)
        try:
            line.tick = tick
            _settle(line)
            yield line
        except BaseException:
            line.close()
            raise
        line.tick = no_tick
        self._back(line)

    def _taken(self, tick: Callable[[], None]) -> Line:
        """A stream; what was told to be forgotten is so before anything is said on it."""
        with self._order:
            with self._lock:
                line = self._rested()
                owing = [each for each in self._idle if each.owed]
                self._idle = [each for each in self._idle if not each.owed]
            while owing:
                each = owing.pop()
                each.tick = tick
                try:
                    _settle(each)
                except OSError:
                    each.close()
                except BaseException:
                    for left in (each, *owing, *([line] if line else [])):
                        left.close()
                    raise
                else:
                    each.tick = no_tick
                    self._back(each)
            if self._unsaid:
                line = line or ValueStream(self._open_stream(), ANSWERS)
                try:
                    for ask in self._unsaid:
                        line.say(ask)
                        line.owed += 1
                except BaseException:
                    line.close()
                    raise
                self._unsaid.clear()
        return line or ValueStream(self._open_stream(), ANSWERS)

    def _rested(self) -> Line | None:
        """A stream that nobody uses; those that were hung up on meanwhile are no more."""
        while self._idle:
            line = self._idle.pop()
            if line.owed or not line.has_more():
                return line
            line.close()
        return None

    def _back(self, line: Line) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < _MOST_STREAMS:
                self._idle.append(line)
                return
        line.close()

    def _hang_up(self) -> None:
        """One stream was lost, and so may those be that nobody uses."""
        self.ahead.forget()
        with self._lock:
            lines, self._idle = self._idle, []
        for line in lines:
            line.close()

    def _later(self, ask: DropValues | TrimStore) -> None:
        """Ask for what nobody waits for: now where there is a stream for it, else before the next ask."""
        with self._order:
            with self._lock:
                line = self._rested()
                if line is None:
                    self._unsaid.append(ask)
                    return
            try:
                line.say(ask)
            except OSError:
                line.close()
                self._unsaid.append(ask)
                return
            line.owed += 1
            self._back(line)


class ValueSource(Protocol):
    """A value that is given, of which bytes may come as they are asked for."""

    size: int

    def views(self, start: int, stop: int, tick: Callable[[], None]) -> Iterator[memoryview]:
        """The bytes from `start` to before `stop`; raises OSError where they never come."""
        ...


class ValueParts:
    """A value in parts, as bytes in a row."""

    def __init__(self, parts: Sequence[Buffer]) -> None:
        self._views = [memoryview(part).cast("B") for part in parts if memoryview(part).nbytes]
        self._ends = list(accumulate(view.nbytes for view in self._views))
        self.size: int = self._ends[-1] if self._ends else 0

    def views(
        self, start: int, stop: int, tick: Callable[[], None] = no_tick
    ) -> Iterator[memoryview]:
        """The bytes from `start` to before `stop`, where they are."""
        del tick  # they are there
        index = bisect_right(self._ends, start)
        while start < stop:
            view, end = self._views[index], self._ends[index]
            until = min(stop, end)
            yield view[start - end + view.nbytes : until - end + view.nbytes]
            start, index = until, index + 1


class _Going:
    """Pieces of a value that go, over any number of streams; `last` is the answer that all is there."""

    def __init__(
        self, digest: str, source: ValueSource, spans: Iterable[Span], tell: Callable[[int], None]
    ) -> None:
        self._digest = digest
        self._source = source
        self._spans = deque(spans)
        self._tell = tell
        self.done = 0
        self.last: BytesStored | None = None

    def __call__(self, line: Line) -> None:
        """Send pieces over this stream until there are no more."""
        ahead: deque[int] = deque()
        while (span := _next(self._spans)) is not None:
            start, stop = span
            keep = StoreBytes(self._digest, self._source.size, start, stop - start)
            line.say(keep, self._source.views(start, stop, line.tick))
            ahead.append(stop - start)
            while len(ahead) > _AHEAD or (ahead and line.has_more()):
                self._hear(line, ahead.popleft())
        while ahead:
            self._hear(line, ahead.popleft())

    def _hear(self, line: Line, size: int) -> None:
        kept = _answer(line, BytesStored)
        self.done += 1
        self._tell(size)
        if kept.is_whole:
            self.last = kept


class _Coming:
    """Pieces of a value that come here, over any number of streams; the first of them tells its size."""

    def __init__(self, digest: str, ahead: ReceiveWindow, tell: Callable[[int], None]) -> None:
        self._digest = digest
        self._ahead = ahead
        self._tell = tell
        self._lock = threading.Lock()
        self._here: PrivateMemory | None = None
        self._arriving: Reassembly | None = None
        self._spans: deque[Span] = deque()
        self._parts = _AHEAD
        self.done = 0
        """Pieces that came since it was begun."""

    @property
    def missing(self) -> int:
        """Bytes that are to come, as far as is known."""
        return self._arriving.missing.size if self._arriving is not None else _AT_ONCE

    def has_all(self) -> bool:
        """Whether nothing is missing."""
        return self._arriving is not None and self._arriving.has_all()

    def whole(self) -> PrivateMemory:
        """All of it, which is the caller's then; raises `CorruptValue`."""
        assert self._here is not None
        assert self._arriving is not None
        if self._arriving.digest() != self._digest:
            raise CorruptValue("its bytes in the store are not those that were packed")
        here, self._here = self._here, None
        return here

    def close(self) -> None:
        """Let go of what has come."""
        if self._here is not None:
            self._here.close()

    def begin(self, many: int) -> None:
        """What is missing is to come over so many streams."""
        self._spans = deque(self._arriving.missing if self._arriving else [(0, _AT_ONCE)])
        self._parts = many * _AHEAD
        self.done = 0

    def __call__(self, line: Line) -> None:
        """Take pieces from this stream until there are no more."""
        asked: deque[tuple[Span, RequestedBytes]] = deque()
        room = memoryview(bytearray(_ROOM))
        try:
            while self._ask(line, asked):
                self._hear(line, *asked[0], room)
                asked.popleft()
        finally:
            for _, each in asked:
                self._ahead.gone(each)

    def _ask(self, line: Line, asked: deque[tuple[Span, RequestedBytes]]) -> bool:
        """Ask for as much as is good now; whether there is something to come."""
        while len(asked) < _AHEAD and self._spans:
            if (taken := self._next()) is not None:
                asked.append(taken)
                (start, stop), _ = taken
                line.say(FetchBytes(self._digest, start, stop - start))
            elif asked:
                break
            else:
                self._ahead.wait(line.tick)
        return bool(asked)

    def _next(self) -> tuple[Span, RequestedBytes] | None:
        """The next bytes, if some may be asked for now."""
        with self._lock:
            if not self._spans:
                return None
            start, stop = self._spans[0]
            asked = self._ahead.ask(min(_PIECE, stop - start), self._parts)
            if asked is None:
                return None
            middle = start + asked.left
            if middle < stop:
                self._spans[0] = middle, stop
            else:
                self._spans.popleft()
            return (start, middle), asked

    def _hear(self, line: Line, span: Span, asked: RequestedBytes, room: memoryview) -> None:
        start, stop = span
        given = _answer(line, BytesFollow)
        self._ahead.answered(asked)
        here, arriving = self._known(given.size)
        # What was asked for before its size was known may be beyond it.
        length = max(0, min(stop, given.size) - start)
        if given.length != length or given.size != arriving.size:
            raise StoreRefused(ValueRefused(errno.ENOENT, "a value has fewer bytes than it had"))
        self._ahead.shrink(asked, length)

        def into(at: int, data: memoryview) -> None:
            here.write(at, data)
            arriving.came(at, data)
            self._ahead.has_come(asked, len(data))
            self.done += 1
            self._tell(len(data))

        # A disk may keep whoever writes to it waiting, which is not to be the line.
        line.pour(start, length, room, into, may_wait=not here.is_in_memory)

    def _known(self, size: int) -> tuple[PrivateMemory, Reassembly]:
        """Room for all of it, and what has come."""
        if self._here is None or self._arriving is None:
            self._here = PrivateMemory(size)
            self._arriving = Reassembly(size, self._here.read)
            self._spans = deque((at, min(end, size)) for at, end in self._spans if at < size)
        return self._here, self._arriving


class _Patience:
    """How long something is tried in which nothing comes on."""

    def __init__(self, seconds: float, machine: str) -> None:
        self._seconds = seconds
        self._machine = machine
        self._until: float | None = None
        self._is_first = True

    def rest(self, error: OSError, tick: Callable[[], None], *, came_on: int = 0) -> None:
        """Wait a moment before the next try; raises `TimeoutError` when there is to be none."""
        now = time.monotonic()
        if self._until is None or came_on:
            self._until = now + self._seconds
        elif now > self._until:
            to = f"to {self._machine}" if self._machine else "there"
            why = f"no way {to} for {self._seconds:g} s: {error.strerror or error}"
            raise TimeoutError(errno.ETIMEDOUT, why) from error
        # What was idle for long may be lost without anything being wrong.
        until = now if self._is_first else now + _AGAIN
        self._is_first = False
        while time.monotonic() < until:
            tick()
            time.sleep(_AGAIN / 5)


def _settle(line: Line) -> None:
    """Take the answers that nobody has waited for."""
    while line.owed:
        line.hear()
        line.owed -= 1


@contextlib.contextmanager
def _refusals() -> Generator[None]:
    """What the machine is not willing to do as `CorruptValue`, or OSError."""
    try:
        yield
    except StoreRefused as refused:
        if refused.code == errno.ENOENT:
            raise CorruptValue("it is not in the store any more") from None
        if refused.code == errno.EBADMSG:
            raise CorruptValue(str(refused)) from None
        raise OSError(refused.code, str(refused)) from None


def _ask(line: Line, ask: Ask, kind: type[A], parts: Iterable[Buffer] = ()) -> A:
    line.say(ask, parts)
    return _answer(line, kind)


def _answer(line: Line, kind: type[A]) -> A:
    found = line.hear()
    if isinstance(found, ValueRefused):
        raise StoreRefused(found)
    if not isinstance(found, kind):
        raise StreamLost(f"it answered with {type(found).__name__}")
    return found


def _next(spans: deque[Span]) -> Span | None:
    try:
        return spans.popleft()
    except IndexError:
        return None


def _piece(size: int, many: int) -> int:
    """How large pieces are, so that each of so many streams has several."""
    return max(_LEAST_PIECE, min(_PIECE, size // (many * _AHEAD)))
