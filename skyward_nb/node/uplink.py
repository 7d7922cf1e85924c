"""A rank's way up: events in order on one socket, printed text gathered for a few milliseconds.

Text and events share a lock, so what a person sees keeps the order of what the code did. An
interrupt never tears a frame: while one is being written, `interrupted` remembers it.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time

from skyward_nb.wire.frames import frame
from skyward_nb.words.messages import Event, Output

_PAUSE = 0.01
_ENOUGH = 64 * 1024


class Uplink:
    """Sends events of one rank; safe from any thread of it."""

    def __init__(self, connection: socket.socket, rank: int) -> None:
        self._socket = connection
        self._rank = rank
        self._lock = threading.RLock()
        self._texts: list[tuple[str, list[str]]] = []
        self._held = 0
        self._flushed = 0.0
        self._rests: dict[str, str] = {}
        self._wake = threading.Event()
        self._alive = True
        self._main = threading.main_thread().ident
        self.sending = 0
        self.interrupted = False
        threading.Thread(target=self._flush_late, name="skyward-uplink", daemon=True).start()
        os.register_at_fork(after_in_child=self._in_child)

    def write(self, stream: str, text: str) -> None:
        """Send text soon; in a process the user's code forked, straight to the rank's pipe."""
        if not self._alive:
            self._write_to_pipe(stream, text)
            return
        with self:
            if self._texts and self._texts[-1][0] == stream:
                self._texts[-1][1].append(text)
            else:
                self._texts.append((stream, [text]))
            self._held += len(text)
            # A line after a while leaves at once; only what follows it closely is gathered.
            rested = text[-1] == "\n" and time.monotonic() - self._flushed > _PAUSE
            if rested or self._held > _ENOUGH:
                self._flush()
            elif not self._wake.is_set():
                self._wake.set()

    def emit(self, event: Event) -> None:
        """Send an event now, after all text written before it."""
        if self._alive:
            with self:
                self._flush()
                self._socket.sendall(frame(event))

    def flush(self) -> None:
        """Send the text written so far."""
        if self._alive:
            with self:
                self._flush()
        else:
            for stream in list(self._rests):
                self._write_to_pipe(stream, "", whole_lines=False)

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
        texts, self._texts, self._held = self._texts, [], 0
        if texts:
            self._flushed = time.monotonic()
        for stream, pieces in texts:
            text = "".join(pieces)
            for at in range(0, len(text), _ENOUGH):
                piece = encodable(text[at : at + _ENOUGH])
                self._socket.sendall(frame(Output(self._rank, stream, piece)))

    def _flush_late(self) -> None:
        # Signals are the main thread's, which sleeps on if another one takes them.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while self._wake.wait() and self._alive:
            time.sleep(_PAUSE)
            self._wake.clear()
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
        self._texts = []
        self._lock = threading.RLock()
        self._socket.close()


def encodable(text: str) -> str:
    """The text with lone surrogates spelt out, so that it can travel as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text
