"""The agent's end of the pipe on which a rank's `faulthandler` writes where its threads are."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

STACK_SIGNAL = signal.SIGRTMIN + 5
"""To the main thread of a rank: write where all threads are. The forge ignores it, and so does a
rank that is not ready for it yet."""

_CHUNK = 1 << 16
_SILENCE = 0.2
_END = b" in _run_module_as_main\n"
"""The outermost frame of the main thread, which comes last: ranks are forked by a module that runs."""
_PATIENCE = 1.0
_CRASH = "Fatal Python error"
_MOST = 1 << 18


class StackPipe:
    """Asks for one text at a time; whoever asks meanwhile gets the same."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._read: int | None = None
        self._asking: list[Callable[[str], None]] = []
        self._found = bytearray()
        self._unasked = bytearray()
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> int:
        """Begin to listen; gives the descriptor that the rank shall write to."""
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        self._loop.add_reader(self._read, self._on_text)
        return write

    def ask(self, ask_for_it: Callable[[], None], answer: Callable[[str], None]) -> None:
        """Have the rank signalled, unless it was for another, and answer with what it writes.

        It has written it all when the main thread's outermost frame has come, or, where there are
        too many frames for that, when it has been silent for a moment. The text is empty when it
        writes nothing: it is stopped, or gone.
        """
        self._asking.append(answer)
        if len(self._asking) > 1:
            return
        self._found.clear()
        self._timer = self._loop.call_later(_PATIENCE, self._over)
        ask_for_it()

    def crash(self) -> str:
        """What was written unasked, once the rank is gone: where it was when it crashed."""
        while self._read is not None and self._on_text():
            """There may be more in the pipe."""
        text = self._unasked.decode("utf-8", "replace")
        # Before it there may be what a look brought too late, and after it nothing.
        return text[at:] if (at := text.find(_CRASH)) >= 0 else ""

    def close(self) -> None:
        """Let go of the pipe, and answer with what there is; safe to call twice."""
        self._over()
        if self._read is not None:
            self._loop.remove_reader(self._read)
            os.close(self._read)
            self._read = None

    def _on_text(self) -> bool:
        """Take what there is; whether there was any."""
        if self._read is None:
            return False
        data = b""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._read, _CHUNK)
            if not data:
                self.close()
                return False
        if not self._asking:
            self._unasked += data[: max(0, _MOST - len(self._unasked))]
        elif data:
            self._found += data[: max(0, _MOST - len(self._found))]
            if self._timer is not None:
                self._timer.cancel()
            if self._found.endswith(_END):
                self._over()
            else:
                self._timer = self._loop.call_later(_SILENCE, self._over)
        return bool(data)

    def _over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        asking, self._asking = self._asking, []
        text = self._found.decode("utf-8", "replace")
        for answer in asking:
            answer(text)
