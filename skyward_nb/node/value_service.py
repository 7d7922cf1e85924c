"""The agent's service for values: it stores and sends values, for users of the pool's folder.

It works in threads, one for each stream, so that values never block the agent's loop. A value arrives
in ranges into a file of its own; when it is complete and has its digest, it gets its name in the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from pathlib import Path

from skyward_nb.node import folder_service
from skyward_nb.node.direct_listeners import DirectListeners
from skyward_nb.node.incoming_value import IncomingValue
from skyward_nb.node.peer_agents import PeerAgents, ValueRelay, serve_next
from skyward_nb.store.blobs import BlobStore, CorruptValue, is_digest
from skyward_nb.store.value_messages import (
    ASKS,
    AdmitPeers,
    Answer,
    Ask,
    BytesFollow,
    BytesStored,
    Done,
    DropValues,
    FetchBytes,
    FolderBrought,
    FolderPack,
    FolderQuery,
    FolderSearch,
    FolderUpdate,
    IdentifyMachine,
    MissingQuery,
    MissingRanges,
    PeersAdmitted,
    SpreadFailures,
    SpreadValue,
    StoreBytes,
    TrimStore,
    ValueRefused,
)
from skyward_nb.store.value_stream import StreamLost, ValueStream

SOCKET = "values.sock"
_STEP = 1 << 20
_SILENT = 300.0
"""Seconds of silence after which the other end counts as gone: its end may go unreported."""
_ABANDONED = 600.0
"""Seconds without further bytes after which an unfinished value is dropped."""

_MOST_FORGOTTEN = 1000


class ValueService:
    """Serves the streams to a socket in `folder`, from a loop that accepts them."""

    def __init__(self, folder: Path, store: BlobStore) -> None:
        self._path = folder / SOCKET
        self._store = store
        self._lock = threading.Lock()
        self._arrivals: dict[str, IncomingValue] = {}
        self._streams: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self._forgetting = threading.Lock()
        self._forgotten: deque[str] = deque(maxlen=_MOST_FORGOTTEN)
        """The words of what was asked to be forgotten, and is."""
        serve = functools.partial(self._serve, answer=self._answer_neighbour)
        self._neighbours = PeerAgents(folder, serve)
        serve = functools.partial(self._serve, answer=self._answer)
        self.direct: DirectListeners = DirectListeners(folder, serve)
        """Ways for clients that come by TCP."""

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Accept connections from now on."""
        self._listener = listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self._path))
        listener.listen(64)
        listener.setblocking(False)
        serve = functools.partial(self._serve, answer=self._answer)
        loop.add_reader(listener, serve_next, listener, serve)
        self._neighbours.begin(loop)
        self.direct.begin(loop)

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close all connections, and accept no more."""
        if self._listener is not None:
            loop.remove_reader(self._listener)
            self._listener.close()
        self._neighbours.close()
        self.direct.close()
        for connection in list(self._streams):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    # ── one stream ──────────────────────────────────────────────────────────────────────

    def _serve(
        self, connection: socket.socket, answer: Callable[[ValueStream[Ask], Ask, memoryview], None]
    ) -> None:
        self._streams.add(connection)
        stream = ValueStream(connection, ASKS)
        stream.patience = _SILENT
        room = memoryview(bytearray(_STEP))
        try:
            while True:
                answer(stream, stream.hear(), room)
        except OSError:
            """The other end is gone."""
        finally:
            self._streams.discard(connection)
            stream.close()

    def _answer(self, stream: ValueStream[Ask], ask: Ask, room: memoryview) -> None:
        match ask:
            case StoreBytes():
                stream.say(self._keep(stream, ask, room))
            case FetchBytes():
                self._give(stream, ask)
            case MissingQuery():
                stream.say(self._lack(ask))
            case DropValues() | TrimStore():
                self._forget(ask)
                stream.say(Done())
            case AdmitPeers():
                stream.say(self._meet(ask))
            case IdentifyMachine() | SpreadValue():
                self._answer_neighbour(stream, ask, room)
            case FolderQuery() | FolderUpdate() | FolderSearch() | FolderBrought() | FolderPack():
                stream.say(folder_service.answer(ask, self._store))

    def _answer_neighbour(self, stream: ValueStream[Ask], ask: Ask, room: memoryview) -> None:
        """Answer another machine of the pool, which may give values, but not fetch any."""
        match ask:
            case StoreBytes():
                stream.say(self._keep(stream, ask, room))
            case MissingQuery():
                stream.say(self._lack(ask))
            case IdentifyMachine(name=name):
                is_me = name == self._neighbours.name
                stream.say(
                    Done() if is_me else ValueRefused(errno.EHOSTUNREACH, "it is another one")
                )
            case SpreadValue():
                stream.say(self._spread(stream, ask))
            case _:
                stream.say(ValueRefused(errno.EPERM, "other machines may not ask for this"))

    def _forget(self, ask: DropValues | TrimStore) -> None:
        """Forget values, once: over a stream that was given up it may come late, when they are there again."""
        with self._forgetting:
            if ask.word in self._forgotten:
                return
            if isinstance(ask, DropValues):
                self._drop([digest for digest in ask.digests if is_digest(digest)])
            else:
                self._store.trim(ask.needed)
            if ask.word:
                self._forgotten.append(ask.word)

    def _drop(self, digests: list[str]) -> None:
        """Forget values, and what has come of them: the rest may come late, and shall not make them whole."""
        for digest in digests:
            if (arrival := self._arrivals.get(digest)) is not None:
                self._give_up(arrival)
        self._store.drop(digests)

    def _meet(self, ask: AdmitPeers) -> Answer:
        try:
            if ask.is_client:
                return self.direct.open(ask)
            return PeersAdmitted(self._neighbours.meet(ask))
        except OSError as error:
            return _refused(error)

    def _spread(self, stream: ValueStream[Ask], ask: SpreadValue) -> Answer:
        """Pass a value on, until all machines have it or the asker hangs up."""

        def tick() -> None:
            if stream.has_more():
                raise StreamLost("nobody waits for it any more")

        try:
            with self._passing(ask.digest, ask.size) as source:
                return SpreadFailures(
                    self._neighbours.spread(ask.digest, source, ask.branches, tick)
                )
        except StreamLost:
            raise
        except CorruptValue as error:
            return ValueRefused(errno.EBADMSG, str(error))
        except OSError as error:
            return _refused(error)

    @contextlib.contextmanager
    def _passing(self, digest: str, size: int) -> Generator[ValueRelay]:
        """A value to pass on, whole or still arriving."""
        handle, wait = -1, _is_there
        if (arrival := self._arrival(digest, size)) is not None:
            with contextlib.suppress(OSError):  # the rest of it has come since
                handle, wait = arrival.opened(), arrival.wait
        if handle < 0:
            with self._store.open(digest) as file:
                handle = os.dup(file.fileno())
        try:
            yield ValueRelay(handle, size, wait)
        finally:
            os.close(handle)

    def _give(self, stream: ValueStream[Ask], ask: FetchBytes) -> None:
        try:
            file = self._store.open(_checked(ask.digest))
        except OSError as error:
            stream.say(_refused(error))
            return
        with file:
            size = os.fstat(file.fileno()).st_size
            length = max(0, min(ask.length, size - ask.offset))
            stream.say(BytesFollow(size, length))
            stream.send_file(file.fileno(), ask.offset, length)

    def _lack(self, ask: MissingQuery) -> Answer:
        try:
            arrival = self._arrival(ask.digest, ask.size)
        except OSError as error:
            return _refused(error)
        if arrival is None:
            return MissingRanges((), self._store.on_disk(ask.digest))
        with arrival.arriving.changed:
            return MissingRanges(tuple(arrival.arriving.missing))

    def _keep(self, stream: ValueStream[Ask], ask: StoreBytes, room: memoryview) -> Answer:
        """Receive the bytes that follow; returns the answer."""
        trouble: OSError | None = None
        arrival: IncomingValue | None = None
        try:
            arrival = self._arrival(ask.digest, ask.size)
        except OSError as error:
            trouble = error
        for at, data in stream.pieces(ask.offset, ask.length, room):
            if arrival is not None and trouble is None:
                try:
                    arrival.write(at, data)
                except OSError as error:
                    trouble = error
                    self._give_up(arrival, error)
        if arrival is not None and arrival.is_settled:
            # All came over another stream meanwhile: these bytes are late, and no trouble.
            return self._settle(arrival)
        if trouble is not None:
            return _refused(trouble)
        if arrival is None:
            return BytesStored(is_whole=True, on_disk=self._store.on_disk(ask.digest))
        return self._settle(arrival)

    # ── what arrives ────────────────────────────────────────────────────────────────────

    def _arrival(self, digest: str, size: int) -> IncomingValue | None:
        """The value with bytes still to come; None if it is whole. Raises OSError."""
        _checked(digest)
        with self._lock:
            if self._store.touch(digest, size):
                return None
            found = self._arrivals.get(digest)
            if found is None or found.size != size:
                self._give_up_the_abandoned()
                coming = sum(each.left for each in self._arrivals.values())
                found = IncomingValue(digest, size, self._store.folder_for(size, coming))
                self._arrivals[digest] = found
            found.touched = time.monotonic()
            return found

    def _give_up_the_abandoned(self) -> None:
        now = time.monotonic()
        for digest, each in list(self._arrivals.items()):
            if now - each.touched > _ABANDONED:
                del self._arrivals[digest]
                each.remove()

    def _give_up(self, arrival: IncomingValue, trouble: OSError | None = None) -> None:
        with self._lock:
            if self._arrivals.get(arrival.digest) is arrival:
                del self._arrivals[arrival.digest]
        arrival.remove(trouble)

    def _settle(self, arrival: IncomingValue) -> Answer:
        """Give a value its name once all of it is there."""
        if not arrival.arriving.has_all():
            return BytesStored(is_whole=False)
        try:
            with arrival.lock:
                if not arrival.is_settled:
                    arrival.check()
                    arrival.is_settled = True
                    try:
                        if arrival.arriving.digest() != arrival.digest:
                            why = "the received bytes are not those that were packed"
                            return ValueRefused(errno.EBADMSG, why)
                        arrival.finish()
                    except OSError as error:
                        arrival.remove(error)
                        raise
                    finally:
                        arrival.remove()  # bytes that come late must not go into what has its name
                    on_disk = self._store.on_disk(arrival.digest)
                    return BytesStored(is_whole=True, is_new=True, on_disk=on_disk)
        except OSError as error:
            return _refused(error)
        finally:
            self._give_up(arrival)  # takes the locks in the order of those who give up others
        if arrival.trouble is not None:
            return _refused(arrival.trouble)
        if not self._store.touch(arrival.digest, arrival.size):
            if arrival.is_whole:
                return ValueRefused(errno.ESTALE, "it was dropped")
            return ValueRefused(errno.EBADMSG, "the received bytes are not those that were packed")
        return BytesStored(is_whole=True, on_disk=self._store.on_disk(arrival.digest))


def _is_there(start: int, stop: int, tick: Callable[[], None]) -> None:
    """All of it has come."""


def _checked(digest: str) -> str:
    """The digest, if it is one and no path into another folder; else raises OSError."""
    if not is_digest(digest):
        raise OSError(errno.EINVAL, "this is not a digest")
    return digest


def _refused(error: OSError) -> ValueRefused:
    return ValueRefused(error.errno or errno.EIO, error.strerror or str(error))
