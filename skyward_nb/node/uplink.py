"""A rank's way up: events in order on one socket, printed text gathered for a few milliseconds.

Text and events share a lock, so what a person sees keeps the order of what the code did. An
interrupt never tears a frame: while one is being written, `interrupted` remembers it.
"""

from __future__ import annotations

import os
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
        self._texts: list[tuple[str, str]] = []
        self._held = 0
        self._flushed = 0.0
        self._wake = threading.Event()
        self._alive = True
        self.sending = 0
        self.interrupted = False
        threading.Thread(target=self._flush_late, name="skyward-uplink", daemon=True).start()
        os.register_at_fork(after_in_child=self._in_child)

    def write(self, stream: str, text: str) -> None:
        """Send text soon; in a process the user's code forked, straight to the rank's pipe."""
        if not self._alive:
            os.write(1 if stream == "stdout" else 2, text.encode("utf-8", "backslashreplace"))
            return
        self.sending += 1
        try:
            with self._lock:
                if self._texts and self._texts[-1][0] == stream:
                    self._texts[-1] = (stream, self._texts[-1][1] + text)
                else:
                    self._texts.append((stream, text))
                self._held += len(text)
                # A line after a while leaves at once; only what follows it closely is gathered.
                rested = text[-1] == "\n" and time.monotonic() - self._flushed > _PAUSE
                if rested or self._held > _ENOUGH:
                    self._flush()
                elif not self._wake.is_set():
                    self._wake.set()
        finally:
            self._leave()

    def emit(self, event: Event) -> None:
        """Send an event now, after all text written before it."""
        if not self._alive:
            return
        self.sending += 1
        try:
            with self._lock:
                self._flush()
                self._socket.sendall(frame(event))
        finally:
            self._leave()

    def flush(self) -> None:
        """Send the text written so far."""
        self.sending += 1
        try:
            with self._lock:
                self._flush()
        finally:
            self._leave()

    def _leave(self) -> None:
        self.sending -= 1
        if not self.interrupted or self.sending:
            return
        if threading.current_thread() is threading.main_thread():
            self.interrupted = False
            raise KeyboardInterrupt

    def _flush(self) -> None:
        texts, self._texts, self._held = self._texts, [], 0
        if texts:
            self._flushed = time.monotonic()
        for stream, text in texts:
            self._socket.sendall(frame(Output(self._rank, stream, encodable(text))))

    def _flush_late(self) -> None:
        while self._wake.wait() and self._alive:
            threading.Event().wait(_PAUSE)
            self._wake.clear()
            with self._lock:
                try:
                    self._flush()
                except OSError:
                    return

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
