"""A channel of an SSH connection for values, used from other threads than the loop's.

There is no pair of sockets between: outgoing bytes are encrypted in place (`compat.asyncssh_private` has the
speed), and the loop writes received bytes directly to their destination.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator

import asyncssh

from skyward_nb.providers.ssh.relayed_session import joined
from skyward_nb.providers.ssh.stream import BulkGate, ChannelSession, whole
from skyward_nb.store.value_stream import StreamLost

_WINDOW = 32 << 20
_PACKET = 64 << 10
"""Measured: with 256 kB, asyncssh takes twice the time to decrypt a byte."""
_PIECE = 32 << 10
"""Bytes given to asyncssh if it has to wait for the host: those of one packet of OpenSSH."""
_MOST_GOING = 4 << 20
_MOST_CAME = 1 << 20
_TURN = 512 << 10
"""Bytes that are sent in a row before other channels have their turn."""
_STEP = 1 << 20


class _IncomingValue:
    """Bytes handed over as they arrive: `left` are still to come, `fresh` are not reported yet."""

    def __init__(self, length: int, into: Callable[[memoryview], None]) -> None:
        self.left = length
        self.fresh = 0
        self.into = into
        self.error: BaseException | None = None


class ValueChannel(ChannelSession):
    """Bytes of values both ways (`ByteStream`, `PushReceiver`); one thread at a time may use each direction."""

    def __init__(self, gate: BulkGate, gone: Callable[[], None]) -> None:
        super().__init__(gate.sealer)
        self._gate = gate
        self._gone = gone
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._going: deque[memoryview] = deque()
        self._going_size = 0
        self._is_soon = False
        """The loop is scheduled, or waits for the gate."""
        self._is_full = False
        self._came: deque[memoryview] = deque()
        self._came_size = 0
        self._is_paused = False
        self._pour: _IncomingValue | None = None
        self._has_heard_all = False
        self._is_over = False
        """The channel has ended in both directions."""

    # ── on the loop ─────────────────────────────────────────────────────────────────────

    def connection_made(self, chan: asyncssh.SSHUNIXChannel[bytes]) -> None:
        """The channel is there."""
        super().connection_made(chan)
        # asyncssh reports sent bytes at once, so that the next ones are encrypted here again.
        chan.set_write_buffer_limits(0, 0)

    def pause_writing(self) -> None:
        """The host takes no more for now."""
        self._is_full = True

    def resume_writing(self) -> None:
        """The host takes more."""
        self._is_full = False
        if not self._is_soon:
            self.go_on()

    def go_on(self) -> None:
        """Send waiting bytes, if the gate and the host allow it."""
        try:
            self._go_on()
        except BaseException:
            # Otherwise the waiting threads would wait for ever.
            self._end()
            raise

    def _go_on(self) -> None:
        turn = _TURN
        while turn > 0:
            with self._changed:
                if self._is_over or self._is_full or not self._going:
                    self._is_soon = False
                    return
                view = self._going[0]
            self._is_soon = True
            if not self._gate.is_open:
                self._gate.wait(self.go_on)
                return
            sent = self._send_some(view[:turn])
            turn -= sent
            with self._changed:
                if self._going and self._going[0] is view:
                    self._going[0] = view[sent:]
                    if not self._going[0]:
                        self._going.popleft()
                    self._going_size -= sent
                    if self._going_size <= _MOST_GOING // 2:
                        self._changed.notify_all()
        self._loop.call_soon(self.go_on)

    def _send_some(self, view: memoryview) -> int:
        assert self._channel is not None
        if sent := self._sealed(view):
            return sent
        data = bytes(view[:_PIECE])
        try:
            self._channel.write(data)
        except BrokenPipeError:
            self._end()
        return len(data)

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        """Hand over received bytes, or keep them until they are asked for."""
        del datatype
        view = memoryview(data)
        with self._changed:
            if self._is_over:
                return
            if (pour := self._pour) is not None and pour.left:
                part, view = view[: pour.left], view[pour.left :]
                try:
                    pour.into(part)
                except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
                    pour.error, pour.left = error, 0
                else:
                    pour.left -= len(part)
                    pour.fresh += len(part)
                if not pour.left or pour.fresh >= _STEP:
                    self._changed.notify_all()
            if view:
                self._came.append(view)
                self._came_size += len(view)
                self._changed.notify_all()
                if self._came_size > _MOST_CAME and not self._is_paused:
                    assert self._channel is not None
                    self._is_paused = True
                    self._channel.pause_reading()

    def eof_received(self) -> bool:
        """The host sends no more; this side may go on."""
        with self._changed:
            self._has_heard_all = True
            self._changed.notify_all()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The channel has ended; bytes that arrived before can still be taken."""
        del exc
        self._end()
        self._gone()

    def _end(self) -> None:
        with self._changed:
            self._is_over = self._has_heard_all = True
            self._going.clear()
            self._changed.notify_all()

    def _resume(self) -> None:
        if self._channel is not None and not self._is_over:
            self._channel.resume_reading()

    def hang_up(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            self._channel.close()

    # ── on any thread ───────────────────────────────────────────────────────────────────

    def _soon(self, call: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError as error:
            raise StreamLost("the line was closed") from error

    def send(self, view: memoryview) -> int:
        """Take some bytes, which must not change until they are answered."""
        with self._changed:
            if self._is_over:
                raise StreamLost("the other end has hung up")
            taken = view[: max(0, _MOST_GOING - self._going_size)]
            if taken:
                self._going.append(taken)
                self._going_size += len(taken)
                if not self._is_soon:
                    self._is_soon = True
                    self._soon(self.go_on)
            return len(taken)

    def wait_to_send(self, milliseconds: float | None) -> bool:
        """Wait until it takes bytes."""
        return self._wait(lambda: self._is_over or self._going_size < _MOST_GOING, milliseconds)

    def receive(self, view: memoryview) -> int | None:
        """Put some bytes into memory."""
        with self._changed:
            filled = 0
            for part in self._taken(len(view)):
                view[filled : filled + len(part)] = part
                filled += len(part)
            return filled or (0 if self._has_heard_all else None)

    def _taken(self, most: int) -> Iterator[memoryview]:
        """Take received bytes, at most so many."""
        while self._came and most:
            first = self._came.popleft()
            part, rest = first[:most], first[most:]
            if rest:
                self._came.appendleft(rest)
            most -= len(part)
            self._came_size -= len(part)
            yield part
        if self._is_paused and self._came_size <= _MOST_CAME // 2:
            self._is_paused = False
            self._soon(self._resume)

    def wait_to_receive(self, milliseconds: float | None) -> bool:
        """Wait until bytes have arrived."""
        return self._wait(self.has_more, milliseconds)

    def has_more(self) -> bool:
        """Whether received bytes wait, or the other end has hung up."""
        return bool(self._came) or self._has_heard_all

    def pour(self, length: int, into: Callable[[memoryview], None]) -> None:
        """Hand over the next bytes as they arrive; those that wait, at once."""
        with self._changed:
            pour = self._pour = _IncomingValue(length, into)
            for part in self._taken(length):
                pour.into(part)
                pour.left -= len(part)

    def wait_to_pour(self, milliseconds: float | None) -> bool:
        """Wait until more has been handed over."""
        pour = self._pour
        assert pour is not None
        self._wait(
            lambda: not pour.left or pour.fresh >= _STEP or self._has_heard_all, milliseconds
        )
        with self._changed:
            came_on, pour.fresh = bool(pour.fresh), 0
            if pour.left and self._has_heard_all:
                raise StreamLost("the other end has hung up")
            return came_on or not pour.left

    def has_poured(self) -> bool:
        """Whether all bytes have been handed over."""
        with self._changed:
            pour = self._pour
            assert pour is not None
            if pour.error is not None:
                raise pour.error
            if not pour.left:
                self._pour = None
            return self._pour is None

    def _wait(self, ready: Callable[[], bool], milliseconds: float | None) -> bool:
        with self._changed:
            return self._changed.wait_for(
                ready, None if milliseconds is None else milliseconds / 1000
            )

    def close(self) -> None:
        """Hang up; nothing is handed over after this."""
        with self._changed:
            self._is_over = self._has_heard_all = True
            self._pour = None
            self._going.clear()
            self._came.clear()
            self._changed.notify_all()
        try:
            self._soon(self.hang_up)
        except StreamLost:
            """The loop has ended, and all lines with it."""


async def direct(
    gate: BulkGate, path: str, gone: Callable[[], None], *, relayed: bool
) -> ValueChannel:
    """A channel for values to the unix socket at `path` on the host; `gone` is called at its end.

    Raises `asyncssh.ChannelOpenError` if nothing listens there.
    """
    way = ValueChannel(gate, gone)
    opening = joined(gate.connection, way, path, relayed=relayed, window=_WINDOW, most=_PACKET)
    # If this is cancelled, the channel is closed once it is open.
    await whole(opening, lambda _: way.close())
    return way
