"""A terminal that this process, or another one, writes to, and what a person then sees in it."""

from __future__ import annotations

import contextlib
import os
import pty
import sys
import termios
import threading
import tty

from skyward_nb.view.terminal import Screen, feed, seen

_END = b"<end of what is read>"
VARIABLES = ("CI", "NO_COLOR", "TERM")


class Terminal:
    """Its two ends; everything written is read at once, so that nobody waits."""

    def __init__(self, columns=80):
        self.reader, self.writer = pty.openpty()
        tty.setraw(self.writer)
        termios.tcsetwinsize(self.writer, (24, columns))
        self._came = b""
        self._more = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        with contextlib.suppress(OSError):  # EIO: its other end is closed
            while chunk := os.read(self.reader, 65536):
                with self._more:
                    self._came += chunk
                    self._more.notify_all()

    def raw(self):
        """All that was written."""
        os.write(self.writer, _END)
        with self._more:
            self._more.wait_for(lambda: _END in self._came, 60)
            head, _, rest = self._came.partition(_END)
            self._came = head + rest
        return head.decode()

    def rows(self):
        """What is to be seen, also what has gone up and out of it."""
        held = []
        screen, lines = feed(Screen(), self.raw(), lambda: held.pop() if held else None)
        return [*held, *lines, *seen(screen)]

    def close(self):
        os.close(self.writer)
        self._thread.join(60)
        os.close(self.reader)


@contextlib.contextmanager
def looked_at(monkeypatch, columns=80):
    """stdout and stderr of this process are a terminal."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    terminal = Terminal(columns)
    try:
        with (
            os.fdopen(os.dup(terminal.writer), "w", encoding="utf-8") as out,
            os.fdopen(os.dup(terminal.writer), "w", encoding="utf-8") as err,
            monkeypatch.context() as patch,
        ):
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            yield terminal
    finally:
        terminal.close()
