"""Streams to sockets on a host, over one SSH connection; here each is one end of a pair of sockets.

Urgent bytes do not wait behind bulk, which is read only while little of it waits to be sent. Each side is
read as fast as the other one takes bytes, and the end of a stream is passed on.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import asyncssh

from skyward_nb.compat.asyncssh_private import (
    GcmSealer,
    gcm_sealer,
    heed_transport,
    is_known_channel,
    is_tunnelled,
    transport_of,
)
from skyward_nb.protocol.commands import Heartbeat
from skyward_nb.protocol.frames import frame
from skyward_nb.providers.ssh.relayed_session import joined

T = TypeVar("T")
_CHUNK = 128 << 10
_MOST_UNSENT = 256 << 10
_LEAST_UNSENT = 64 << 10
_WINDOW = 512 << 10
_BUFFER = 1 << 20
_LATE = 5.0
_MOST_LATE = 60.0
"""Time limit of an answer in seconds, even if other bytes arrive."""
_HEAD = 4
"""Bytes of the length in front of a frame."""
_BEAT = 5.0
_SOON = 0.5
_MISSED = 4
_BEAT_FRAME = frame(Heartbeat(_MISSED * _BEAT))


class BulkGate:
    """Whether a connection takes bulk now: shut while many bytes wait to be sent.

    `heard` is the time of the last bytes that arrived, by the loop's clock.
    """

    def __init__(self, connection: asyncssh.SSHClientConnection) -> None:
        self.connection: asyncssh.SSHClientConnection = connection
        self.is_open: bool = True
        self._clock = asyncio.get_running_loop().time
        self.heard: float = self._clock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._take = heed_transport(connection, full=self._shut, room=self._reopen, came=self._hear)
        transport_of(connection).set_write_buffer_limits(_MOST_UNSENT, _LEAST_UNSENT)
        self.is_tunnelled: bool = is_tunnelled(connection)
        self.sealer: GcmSealer | None = gcm_sealer(connection)
        self.relays: bool | None = None
        """Whether sockets are reached by programs there, as sshd forwards none; None: nobody knows yet."""
        self.finding_out: asyncio.Lock = asyncio.Lock()

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` once the gate is open again."""
        self._waiting.append(go_on)

    async def patiently(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for an answer while bytes arrive; raises TimeoutError if none do."""
        doing = asyncio.ensure_future(work)
        latest = self._clock() + _MOST_LATE
        try:
            while not doing.done():
                began = self._clock()
                await asyncio.wait([doing], timeout=_LATE)
                if not doing.done() and (self.heard < began or self._clock() > latest):
                    raise TimeoutError(f"no answer in {_LATE:g} s")
            return doing.result()
        finally:
            doing.cancel()

    def _hear(self, data: bytes, datatype: asyncssh.DataType = None) -> None:
        self.heard = self._clock()
        self._take(data, datatype)

    def _shut(self) -> None:
        self.is_open = False

    def _reopen(self) -> None:
        self.is_open = True
        # In turn: a stream that shuts the gate again goes to the end of the queue.
        for _ in range(len(self._waiting)):
            if not self.is_open:
                break
            self._waiting.popleft()()


class ChannelSession(asyncssh.SSHUNIXSession[bytes]):
    """A session that encrypts its own packets if it has a sealer for its channel."""

    def __init__(self, sealer: GcmSealer | None) -> None:
        self._sealer = sealer
        self._channel: asyncssh.SSHUNIXChannel[bytes] | None = None

    def connection_made(self, chan: asyncssh.SSHUNIXChannel[bytes]) -> None:
        """The channel is there."""
        self._channel = chan
        if not is_known_channel(chan):
            self._sealer = None

    def _sealed(self, view: memoryview) -> int:
        """Send as many bytes as fit; returns their number, 0 if asyncssh has to send them."""
        if self._sealer is None or self._channel is None:
            return 0
        return self._sealer.send(self._channel, view)


class ChannelRelay(ChannelSession):
    """Moves bytes between a channel of an SSH connection and `end`; `bulk` waits at the gate."""

    def __init__(self, end: socket.socket, gate: BulkGate, *, bulk: bool = True) -> None:
        super().__init__(gate.sealer)
        self._end = end
        self._gate = gate if bulk else None
        self._loop = asyncio.get_running_loop()
        self._unread: deque[memoryview] = deque()
        self._is_full = False
        self._is_reading = False
        self._is_writing = False
        self._has_said_all = False
        """This side sends no more."""
        self._has_heard_all = False
        """The host sends no more."""
        self._is_over = False

    def session_started(self) -> None:
        """The host's end is connected: begin."""
        self.go_on()

    # ── there ───────────────────────────────────────────────────────────────────────────

    def go_on(self) -> None:
        """Read this side again, if the gate and the host allow it."""
        if self._is_reading or self._is_full or self._has_said_all or self._is_over:
            return
        if self._gate is not None and not self._gate.is_open:
            self._gate.wait(self.go_on)
            return
        self._is_reading = True
        self._loop.add_reader(self._end, self._read)

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._end)

    def _read(self) -> None:
        assert self._channel is not None
        if self._gate is not None and not self._gate.is_open:
            self._stop_reading()
            self._gate.wait(self.go_on)
            return
        try:
            data = self._end.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.pass_on(data)
            return
        self._stop_reading()
        self._has_said_all = True
        if self._is_let_go():
            self._channel.close()
        else:
            self._channel.write_eof()

    def pass_on(self, data: bytes) -> None:
        """Send bytes to the host."""
        assert self._channel is not None
        if (sent := self._sealed(memoryview(data))) < len(data):
            self._channel.write(data[sent:])

    def _is_let_go(self) -> bool:
        """Whether this side is closed, not only shut for writing."""
        poll = select.poll()
        poll.register(self._end, 0)
        return bool(poll.poll(0))

    def pause_writing(self) -> None:
        """The host takes no more for now."""
        self._is_full = True
        self._stop_reading()

    def resume_writing(self) -> None:
        """The host takes more."""
        self._is_full = False
        self.go_on()

    # ── back ────────────────────────────────────────────────────────────────────────────

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        """Pass received bytes to this side, as many as it takes."""
        del datatype
        view = memoryview(data)
        if not self._unread:
            view = view[self._send(view) :]
        if view:
            self._unread.append(view)
            self._wait_for_room()

    def eof_received(self) -> bool:
        """The host sends no more; this side may go on."""
        self._has_heard_all = True
        if not self._unread:
            self._say_end()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The channel has ended; bytes that arrived before still go to this side."""
        del exc
        self._stop_reading()
        self._has_heard_all = True
        self._is_over = True
        if not self._unread:
            self._end.close()

    def _send(self, view: memoryview) -> int:
        try:
            return self._end.send(view)
        except BlockingIOError:
            return 0
        except OSError:
            # This side reads no more.
            self._unread.clear()
            if self._channel is not None and not self._is_over:
                self._channel.close()
            return len(view)

    def _wait_for_room(self) -> None:
        if not self._is_writing:
            self._is_writing = True
            self._loop.add_writer(self._end, self._write)
            if self._channel is not None and not self._is_over:
                self._channel.pause_reading()

    def _write(self) -> None:
        while self._unread:
            view = self._unread[0]
            sent = self._send(view)
            if not self._unread:
                break
            if sent < len(view):
                self._unread[0] = view[sent:]
                return
            self._unread.popleft()
        self._is_writing = False
        self._loop.remove_writer(self._end)
        if self._is_over:
            self._end.close()
            return
        if self._has_heard_all:
            self._say_end()
        if self._channel is not None:
            self._channel.resume_reading()

    def _say_end(self) -> None:
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_WR)


class HeartbeatRelay(ChannelRelay):
    """A stream of frames with a heartbeat between them, for the host's end.

    Without it, the agent would notice a lost client only with sshd, after hours.
    """

    def __init__(self, end: socket.socket, gate: BulkGate) -> None:
        super().__init__(end, gate, bulk=False)
        self._head = b""
        self._rest = 0
        """Bytes that the current frame still lacks."""
        self._timer: asyncio.TimerHandle | None = None

    def pass_on(self, data: bytes) -> None:
        """Send bytes to the host; the first ones start the heartbeat."""
        super().pass_on(data)
        if self._timer is None:
            # At once: the agent would wait for a client that is cut off before the first beat.
            self._timer = self._loop.call_later(0, self._beat)
        at = 0
        while at < len(data):
            step = min(self._rest, len(data) - at)
            self._rest -= step
            at += step
            if not self._rest and at < len(data):
                head = data[at : at + _HEAD - len(self._head)]
                self._head += head
                at += len(head)
                if len(self._head) == _HEAD:
                    self._rest, self._head = int.from_bytes(self._head, "big"), b""

    def _beat(self) -> None:
        is_between = not (self._rest or self._head or self._is_full or self._has_said_all)
        if is_between:
            super().pass_on(_BEAT_FRAME)
        self._timer = self._loop.call_later(_BEAT if is_between else _SOON, self._beat)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)


async def whole(opening: Awaitable[T], undo: Callable[[T], object] = lambda _: None) -> T:
    """The opened channel; if this is cancelled, the channel is opened nevertheless, and then undone.

    A half-opened channel would count for sshd until the connection ends.
    """
    task = asyncio.ensure_future(opening)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(
            lambda task: task.cancelled() or task.exception() or undo(task.result())
        )
        raise


async def forward(gate: BulkGate, path: str, *, relayed: bool) -> socket.socket:
    """A stream of frames to the unix socket at `path` on the host.

    Raises `asyncssh.ChannelOpenError` if nothing listens there.
    """
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
    theirs.setblocking(False)
    stream = HeartbeatRelay(theirs, gate)

    async def opened() -> None:
        try:
            await joined(
                gate.connection, stream, path, relayed=relayed, window=_WINDOW, most=_CHUNK
            )
        except BaseException:
            theirs.close()
            raise

    try:
        # If this is cancelled, the stream finds this side closed, and closes.
        await whole(opened())
    except BaseException:
        ours.close()
        raise
    return ours
