"""The content store of another machine, reached through streams to its agent.

A small value goes in one message, a large one in pieces, over several streams where the machine is
far away. A stream that is lost is opened again, and what has arrived stays. A fetched value is
verified once, and kept here until it is dropped.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import socket
import threading
import time
from collections.abc import Callable, Collection, Generator, Sequence
from typing import TypeVar

from skyward_nb.store.blobs import Buffer, CorruptValue
from skyward_nb.store.byte_streams import ByteStream
from skyward_nb.store.content_store import no_tick
from skyward_nb.store.private_memory import PrivateMemory
from skyward_nb.store.receive_window import ReceiveWindow
from skyward_nb.store.stream_pool import MOST_STREAMS, AgentStream, StreamPool
from skyward_nb.store.value_messages import (
    Address,
    AdmitPeers,
    BytesStored,
    DropValues,
    FolderAsk,
    MissingQuery,
    MissingRanges,
    PeersAdmitted,
    PoolKey,
    SpreadBranch,
    SpreadFailures,
    SpreadValue,
    StoreBytes,
    TrimStore,
)
from skyward_nb.store.value_source import ValueParts, ValueSource
from skyward_nb.store.value_stream import A, StoreRefused, request
from skyward_nb.store.value_transfer import AT_ONCE, LEAST_PIECE, Download, Upload
from skyward_nb.system.concurrency import run_concurrently

T = TypeVar("T")
_WINDOW = 2 << 20
_RATE = 512 << 20
"""Bytes a second that streams with so many bytes on their way shall reach together."""
_NEAR = 0.002
"""Seconds of delay below which one stream is enough."""
_PAUSE = 0.25


class RemoteStore:
    """A `ContentStore` over streams that `connect` opens, from any thread.

    After an OSError it tries again. When nothing arrives for `patience` seconds, it raises
    `TimeoutError`. `AgentGone` is raised at once. `name` is the machine's.
    """

    def __init__(
        self,
        connect: Callable[[], socket.socket | ByteStream],
        patience: float = 60.0,
        name: str = "",
    ) -> None:
        self.name: str = name
        self.patience: float = patience
        self.moved: int = 0
        """Bytes of large values that were sent or fetched, ever."""
        self._streams = StreamPool(connect)
        self.window: ReceiveWindow = ReceiveWindow()
        """How many bytes to request at a time on this line."""
        self._lock = threading.Lock()
        self._on_disk: dict[str, bool] = {}
        self._fetched: dict[str, PrivateMemory] = {}

    def put(self, digest: str, parts: Sequence[Buffer], tick: Callable[[], None] = no_tick) -> bool:
        """Store a value there, all or nothing; whether it was not there before.

        Raises OSError: ENOSPC where there is no room, ETIMEDOUT where the machine is not reached; and
        `CorruptValue` where the bytes that came do not have the digest.
        """
        return self._put(digest, ValueParts(parts), tick)

    def on_disk(self, digest: str) -> bool:
        """Whether a value that was put had to go to disk."""
        return self._on_disk.get(digest, False)

    def fetch(self, digests: Collection[str], tick: Callable[[], None] = no_tick) -> None:
        """Bring values here; those that are not there are left out. Raises OSError."""
        for digest in digests:
            with contextlib.suppress(CorruptValue):
                self._local(digest, tick)

    def map(self, digest: str) -> memoryview:
        """A value's bytes, private to the caller; raises `CorruptValue`, or OSError."""
        while True:
            memory = self._local(digest, no_tick)
            with self._lock:
                if self._fetched.get(digest) is memory:  # else it was dropped just now
                    return memory.map()

    def drop(self, digests: Collection[str]) -> None:
        """Forget these values, there and here."""
        for digest in digests:
            self._on_disk.pop(digest, None)
            with self._lock:
                memory = self._fetched.pop(digest, None)
                if memory is not None:
                    memory.close()
        if digests:
            self._streams.post(DropValues(tuple(digests), secrets.token_hex(8)))

    def trim(self, needed: Collection[str]) -> None:
        """Forget the least recently used of the values not `needed`, beyond the spare room there."""
        self._streams.post(TrimStore(tuple(needed), secrets.token_hex(8)))

    def close(self) -> None:
        """Close the streams, and free what was fetched."""
        self._streams.close()
        with self._lock:
            while self._fetched:
                self._fetched.popitem()[1].close()

    # ── sending ─────────────────────────────────────────────────────────────────────────

    def _put(self, digest: str, source: ValueSource, tick: Callable[[], None]) -> bool:
        size = source.size
        with _refusals():
            if size > AT_ONCE:
                stored = self._upload(digest, source, tick)
            else:
                stored = self._send_whole(digest, source, tick)
        self._on_disk[digest] = stored.on_disk
        return stored.is_new

    def _send_whole(
        self, digest: str, source: ValueSource, tick: Callable[[], None]
    ) -> BytesStored:
        size = source.size
        whole = StoreBytes(digest, size, 0, size)
        patience = _Patience(self.patience, self.name)

        def send(line: AgentStream) -> BytesStored:
            return request(line, whole, BytesStored, source.views(0, size, tick))

        while True:
            try:
                return self._try(send, tick)
            except StoreRefused as refused:
                patience.rest(_dropped(refused), tick)

    def _upload(self, digest: str, source: ValueSource, tick: Callable[[], None]) -> BytesStored:
        patience = _Patience(self.patience, self.name)
        is_new = False
        try:
            while (found := self._missing(digest, source.size, tick)).spans:
                is_new = True
                count = self._stream_count(sum(stop - start for start, stop in found.spans))
                upload = Upload(digest, source, found.spans, count, self._count_moved)
                try:
                    error = self._transfer(upload, count, tick)
                except StoreRefused as refused:
                    error = _dropped(refused)
                if upload.stored is not None:
                    # The stream whose answer came last may not be the one that gave it its name.
                    return BytesStored(is_whole=True, is_new=True, on_disk=upload.stored.on_disk)
                if error is not None:
                    patience.rest(error, tick, progress=upload.done)
        except BaseException:
            if is_new:  # it may have arrived all the same
                self.drop([digest])
            raise
        return BytesStored(is_whole=True, is_new=is_new, on_disk=found.on_disk)

    def _missing(self, digest: str, size: int, tick: Callable[[], None]) -> MissingRanges:
        """What is missing there of a value; how long the answer takes tells the delay."""

        def ask(stream: AgentStream) -> MissingRanges:
            began = time.monotonic()
            found = request(stream, MissingQuery(digest, size), MissingRanges)
            self.window.took(time.monotonic() - began)
            return found

        return self._try(ask, tick)

    def _count_moved(self, size: int) -> None:
        with self._lock:
            self.moved += size

    # ── sending on to other machines ────────────────────────────────────────────────────

    def meet(
        self, key: PoolKey, hosts: tuple[str, ...], tick: Callable[[], None]
    ) -> tuple[Address, ...]:
        """Have the machine admit peers with this key, at these hosts; the addresses. Raises OSError."""
        ask = AdmitPeers(self.name, key, hosts)
        with _refusals():
            return self._try(lambda stream: request(stream, ask, PeersAdmitted), tick).addresses

    def lacks(self, digest: str, size: int, tick: Callable[[], None]) -> bool:
        """Whether a value, or a part of it, is not there; raises OSError, as where there is no room."""
        with _refusals():
            found = self._missing(digest, size, tick)
        self._on_disk[digest] = found.on_disk
        return bool(found.spans)

    def spread(
        self, digest: str, size: int, branches: tuple[SpreadBranch, ...], tick: Callable[[], None]
    ) -> dict[str, str]:
        """Have the machine send a value on as it arrives; which machines did not get it, and why."""
        if not branches:
            return {}
        try:
            with self._streams.stream(tick) as stream:
                ask = SpreadValue(digest, size, branches)
                return request(stream, ask, SpreadFailures).machines
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
        """Store a value there, and on machines that get it from there, as `spread`. Raises as `put`."""
        failures: dict[str, str] = {}

        def put(tick: Callable[[], None]) -> None:
            self._put(digest, source, tick)

        def spread(tick: Callable[[], None]) -> None:
            failures.update(self.spread(digest, source.size, branches, tick))

        if branches and not self._streams.has_several(tick):
            put(tick)  # nothing could come while the machine waits for more to send on
            spread(tick)
        else:
            run_concurrently([put, spread] if branches else [put], tick)
        return failures

    # ── working folders ─────────────────────────────────────────────────────────────────

    def ask_folder(self, ask: FolderAsk, kind: type[A], tick: Callable[[], None]) -> A:
        """The machine's answer about a copy of a working folder; raises OSError."""
        with _refusals():
            return self._try(lambda stream: request(stream, ask, kind), tick)

    # ── fetching ────────────────────────────────────────────────────────────────────────

    def _local(self, digest: str, tick: Callable[[], None]) -> PrivateMemory:
        """A value's bytes on this machine, fetched if need be."""
        with self._lock:
            if (known := self._fetched.get(digest)) is not None:
                return known
        with _refusals():
            memory = self._download(digest, tick)
        with self._lock:
            known = self._fetched.setdefault(digest, memory)
        if known is not memory:
            memory.close()
        return known

    def _download(self, digest: str, tick: Callable[[], None]) -> PrivateMemory:
        download = Download(digest, self.window, self._count_moved)
        patience = _Patience(self.patience, self.name)
        count = 1
        try:
            while not download.has_all():
                download.begin(count)
                if (error := self._transfer(download, count, tick)) is not None:
                    patience.rest(error, tick, progress=download.done)
                # One stream is enough for what a window of it holds.
                count = min(self._stream_count(download.missing), 1 + self.window.most // _WINDOW)
            return download.take()
        except CorruptValue:
            self.drop([digest])
            raise
        finally:
            download.close()

    # ── trying ──────────────────────────────────────────────────────────────────────────

    def _stream_count(self, size: int) -> int:
        """Over how many streams so many bytes go: one where the machine is near."""
        delay = self.window.delay
        if delay < _NEAR:
            return 1
        fill = int(delay * _RATE / _WINDOW) + 1
        return max(1, min(fill, MOST_STREAMS, size // LEAST_PIECE))

    def _try(self, work: Callable[[AgentStream], T], tick: Callable[[], None]) -> T:
        """Do work over one stream, and over another one when that is lost."""
        patience = _Patience(self.patience, self.name)
        found: list[T] = []
        while error := self._transfer(lambda stream: found.append(work(stream)), 1, tick):
            patience.rest(error, tick)
        return found[0]

    def _transfer(
        self, work: Callable[[AgentStream], None], count: int, tick: Callable[[], None]
    ) -> OSError | None:
        """Do work over so many streams at the same time; how one was lost, if one was."""
        errors: list[OSError] = []

        def go(tick: Callable[[], None]) -> None:
            try:
                with self._streams.stream(tick) as stream:
                    work(stream)
            except OSError as error:
                errors.append(error)
                self.window.forget()
                self._streams.hang_up()

        run_concurrently([go] * count, tick)
        return errors[0] if errors else None


class _Patience:
    """How long something without progress is tried again."""

    def __init__(self, seconds: float, machine: str) -> None:
        self._seconds = seconds
        self._machine = machine
        self._until: float | None = None
        self._is_first = True

    def rest(self, error: OSError, tick: Callable[[], None], *, progress: int = 0) -> None:
        """Wait a moment before the next try; raises `TimeoutError` when there is to be none."""
        now = time.monotonic()
        if self._until is None or progress:
            self._until = now + self._seconds
        elif now > self._until:
            to = f"to {self._machine}" if self._machine else "there"
            why = f"no way {to} for {self._seconds:g} s: {error.strerror or error}"
            raise TimeoutError(errno.ETIMEDOUT, why) from error
        # A stream that was idle for long may be lost without anything being wrong.
        until = now if self._is_first else now + _PAUSE
        self._is_first = False
        while time.monotonic() < until:
            tick()
            time.sleep(_PAUSE / 5)


def _dropped(refused: StoreRefused) -> OSError:
    """Why a value is to be sent once more: it was forgotten as it came. Raises any other refusal."""
    if refused.code != errno.ESTALE:
        raise refused
    return OSError(refused.code, str(refused))


@contextlib.contextmanager
def _refusals() -> Generator[None]:
    """Raise what the machine refuses as `CorruptValue`, or OSError."""
    try:
        yield
    except StoreRefused as refused:
        if refused.code == errno.ENOENT:
            raise CorruptValue("it is not in the store any more") from None
        if refused.code == errno.EBADMSG:
            raise CorruptValue(str(refused)) from None
        raise OSError(refused.code, str(refused)) from None
