"""A rank's way up: events in order on one socket, printed text gathered for a few milliseconds.

Text and events wait in one queue, so what a person sees keeps the order of what the code did.
Writers only append to it, without a lock; the sender takes one. An interrupt never tears a
frame: while one is being written, `interrupted` remembers it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterable

from skyward_nb.node.unread_bytes import THERE, unread_bytes
from skyward_nb.protocol.events import (
    Display,
    Event,
    Metric,
    Metrics,
    Output,
    Progress,
    RankDone,
    RankPhase,
    Waited,
)
from skyward_nb.protocol.frames import frame
from skyward_nb.runtime import event_sink

_PAUSE = 0.01
_SETTLE = 5.0
_BLINK = 0.00002
_ENOUGH = 64 * 1024
_MANY = 4096
_CAN_WAIT = (Metric, Metrics, Progress, Display, RankPhase, Waited)

Written = tuple[str, int, bool, str]
"""Stream, run, whether it is hidden, and text."""


class Uplink:
    """Sends events of one rank; safe from any thread of it."""

    def __init__(self, connection: socket.socket, rank: int) -> None:
        self._socket = connection
        self._rank = rank
        self._lock = threading.RLock()
        self._queue: list[Written | Event] = []
        self._flushed = self._text_flushed = 0.0
        self._flush_is_due = False
        self._rests: dict[str, str] = {}
        # Not an Event: an interrupt within its `set` would keep the lock inside it for good.
        self._asleep = threading.Lock()
        self._asleep.acquire()
        self._alive = True
        self._main = threading.main_thread().ident
        self.run = 0
        self.sending: int = 0
        self.interrupted: bool = False
        threading.Thread(target=self._flush_late, name="skyward-uplink", daemon=True).start()
        os.register_at_fork(after_in_child=self._in_child)

    def write(self, stream: str, text: str) -> None:
        """Send text soon; in a process the user's code forked, straight to the rank's pipe."""
        if not self._alive:
            self._write_to_pipe(stream, text)
            return
        queue = self._queue
        run = self.run if threading.get_ident() == self._main else event_sink.run()
        queue.append((stream, run, event_sink.is_hidden(stream), text))
        is_much = len(queue) >= _MANY or len(text) > _ENOUGH
        # A line after a while leaves at once; only what follows it closely is gathered.
        rested = text[-1] == "\n" and time.monotonic() - self._text_flushed > _PAUSE
        self._flush_if_due(now=is_much or rested)

    def emit(self, event: Event) -> None:
        """Send an event after all earlier ones; one that many may follow is sent a little later."""
        if not self._alive:
            return
        self._queue.append(event)
        must_not_wait = not isinstance(event, _CAN_WAIT) or len(self._queue) >= _MANY
        rested = not isinstance(event, RankPhase) and time.monotonic() - self._flushed > _PAUSE
        self._flush_if_due(now=must_not_wait or rested)

    def _flush_if_due(self, *, now: bool) -> None:
        """Send at once `now`; else see that it is sent late."""
        if now:
            self.flush()
        elif not self._flush_is_due:
            self._flush_is_due = True
            with contextlib.suppress(RuntimeError):  # it is awake
                self._asleep.release()

    def flush(self) -> None:
        """Send the text written so far."""
        if self._alive:
            with self:
                self._flush()
        else:
            for stream in list(self._rests):
                self._write_to_pipe(stream, "", whole_lines=False)

    def hang_up(self) -> None:
        """Send the last events, and close the connection for both ends."""
        self.flush()
        self._socket.shutdown(socket.SHUT_RDWR)

    def settle(self) -> None:
        """Flush, and wait until the agent has read it: what C code writes now comes after.

        An agent that holds the rank back reads nothing; after 5 s the rank goes on.
        """
        self.flush()
        until = time.monotonic() + _SETTLE
        while self._alive and time.monotonic() < until:
            if not unread_bytes(self._socket.fileno(), THERE):
                return
            time.sleep(_BLINK)

    def __enter__(self) -> None:
        """Let no other thread in, and let an interrupt of the main thread wait until the end."""
        if threading.get_ident() == self._main:
            self.sending += 1
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if threading.get_ident() == self._main:
            self.sending -= 1
            if self.interrupted and not self.sending:
                self.interrupted = False
                raise KeyboardInterrupt

    def _flush(self) -> None:
        # First: a thread that appends after this wakes the thread that flushes late.
        self._flush_is_due = False
        queue = self._queue
        many = len(queue)
        if not many:
            return
        taken = queue[:many]
        del queue[:many]
        if isinstance(taken[-1], RankDone):
            # Nobody has seen what it was about to do, and now it has.
            taken[:] = [each for each in taken if not isinstance(each, RankPhase)]
        data = b""
        for event in self._events(taken):
            data += self._framed(event)
            if len(data) > _ENOUGH:
                self._socket.sendall(data)
                data = b""
        if data:
            self._socket.sendall(data)
        self._flushed = time.monotonic()
        if any(isinstance(each, tuple) for each in taken):
            self._text_flushed = self._flushed

    def _framed(self, event: Event) -> bytes:
        """An event as bytes; in place of one that holds what cannot travel, a word on that."""
        try:
            return frame(event)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            if not isinstance(event, _CAN_WAIT):
                raise
            text = f"{type(event).__name__} could not be sent: {error}\n"
            return frame(Output(self._rank, "stderr", encodable(text), event.run))

    def _events(self, taken: list[Written | Event]) -> Iterable[Event]:
        """Events in order, with text that was written in a row in as few of them as can be.

        Metrics come first, all of a kind as one: where they stand among text is not told.
        """
        yield from _metrics([each for each in taken if isinstance(each, Metric)])
        texts: list[str] = []
        held, kind = 0, ("", 0, False)
        for each in taken:
            if isinstance(each, Metric):
                continue
            if isinstance(each, tuple):
                if texts and (each[:3] != kind or held > _ENOUGH):
                    yield from self._outputs(*kind, texts)
                    held = 0
                kind = each[:3]
                texts.append(each[3])
                held += len(each[3])
            else:
                yield from self._outputs(*kind, texts)
                held = 0
                yield each
        yield from self._outputs(*kind, texts)

    def _outputs(self, stream: str, run: int, hidden: bool, texts: list[str]) -> Iterable[Event]:
        text = "".join(texts)
        texts.clear()
        for at in range(0, len(text), _ENOUGH):
            yield Output(self._rank, stream, encodable(text[at : at + _ENOUGH]), run, hidden)

    def _flush_late(self) -> None:
        # Signals are the main thread's, which sleeps on if another one takes them.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while self._asleep.acquire() and self._alive:
            time.sleep(_PAUSE)
            with self._lock:
                try:
                    self._flush()
                except OSError:
                    return

    def _write_to_pipe(self, stream: str, text: str, *, whole_lines: bool = True) -> None:
        """Write lines in one piece each, so that those of several processes do not mix."""
        text = self._rests.pop(stream, "") + text
        whole, newline, rest = text.rpartition("\n") if whole_lines else (text, "", "")
        if rest:
            self._rests[stream] = rest
        if whole or newline:
            data = (whole + newline).encode("utf-8", "backslashreplace")
            os.write(1 if stream == "stdout" else 2, data)

    def _in_child(self) -> None:
        """A process forked by user code must not speak on the rank's wire."""
        self._alive = False
        self._queue.clear()
        self._lock = threading.RLock()
        self._socket.close()


def _metrics(single: list[Metric]) -> Iterable[Event]:
    """The logged values, as one event for each set of metrics."""
    alike: dict[tuple[int, tuple[str, ...]], list[Metric]] = {}
    for each in single:
        alike.setdefault((each.run, tuple(each.values)), []).append(each)
    for (run, names), logged in alike.items():
        if len(logged) == 1:
            yield logged[0]
        else:
            steps = [each.step for each in logged]
            values = {name: [each.values[name] for each in logged] for name in names}
            yield Metrics(logged[0].rank, steps, values, run)


def encodable(text: str) -> str:
    """The text with lone surrogates spelt out, so that it can travel as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def text_of(error: BaseException) -> str:
    """An exception's text, fit to travel; if its `__str__` fails, that."""
    try:
        return encodable(str(error))
    except Exception as raised:  # noqa: BLE001 - a user's broken __str__
        return f"its __str__ raised {type(raised).__name__}"
