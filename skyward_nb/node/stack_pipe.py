"""The agent's end of the pipe on which a rank's `faulthandler` writes stacks."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

STACK_SIGNAL = signal.SIGRTMIN + 5
"""Has the main thread of a rank write its stack. The forge and ranks that are not ready ignore it."""

_CHUNK = 1 << 16
_SILENCE = 0.2
_END = b" in _run_module_as_main\n"
"""The outermost frame of the main thread, which comes last: ranks are forked by a module that runs."""
_BEGIN = b"Stack (most recent call first)"
"""Begins the text of the main thread."""
_THREAD = b"hread "
"""Begins, but for one letter, the text of each other thread."""
_CUT = b"  ...\n"
"""The mark in its place if there are too many frames."""
OTHERS_END = b"\0"
"""The rank's control thread writes this after the stacks of the other threads."""
_OTHERS_TAKE = 0.3
_PATIENCE = 3.0
"""Seconds for a rank that is held up; one that is stopped for good is waited for as long."""
_CRASH = b"Fatal Python error"
_MOST = 1 << 18


class StackPipe:
    """Asks for one text at a time; further requests meanwhile get the same one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._read: int | None = None
        self._asking: list[Callable[[str], None]] = []
        self._found = bytearray()
        self._said = bytearray()
        """What was written since the last request, or since the rank crashed: that may be while it is asked."""
        self._timer: asyncio.TimerHandle | None = None
        self._main: Callable[[], None] | None = None
        """Has the main thread signalled, which is yet to be."""
        self._request: tuple[Callable[[], None], Callable[[], None]] | None = None

    def open(self) -> int:
        """Begin to listen; gives the descriptor that the rank shall write to."""
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        self._loop.add_reader(self._read, self._on_text)
        return write

    def ask(
        self, others: Callable[[], None], main: Callable[[], None], answer: Callable[[str], None]
    ) -> None:
        """Have the rank write the stacks of its other threads, then signal `main`; answer with the whole text.

        A second request meanwhile gets the same answer. The main thread is signalled when the others are
        written, lest both write at once, or after a moment, as native code may hold the interpreter: if both
        have written at once then, both are asked once more. The text ends with both, or with silence; it is
        empty if the rank is stopped, or gone.
        """
        self._asking.append(answer)
        if len(self._asking) > 1:
            return
        self._request = others, main
        self._begin(others, main)

    def _begin(self, others: Callable[[], None], main: Callable[[], None]) -> None:
        self._found.clear()
        if _CRASH not in self._said:
            self._said.clear()
        self._main = main
        self._wait_for_others()
        others()

    def _wait_for_others(self) -> None:
        self._stop_waiting()
        self._timer = self._loop.call_later(_OTHERS_TAKE, self._ask_main)

    def _ask_main(self) -> None:
        main, self._main = self._main, None
        if main is not None:
            self._wait(_PATIENCE)
            main()

    def crash(self) -> str:
        """The stack that a rank wrote as it crashed; read once the rank is gone."""
        while self._read is not None and self._on_text():
            """There may be more in the pipe."""
        # Before it there may be what a look brought, and after it nothing.
        at = self._said.find(_CRASH)
        return self._said[at:].decode("utf-8", "replace") if at >= 0 else ""

    def close(self) -> None:
        """Close the pipe, and answer with the text so far; safe to call twice."""
        self._over()
        if self._read is not None:
            self._loop.remove_reader(self._read)
            os.close(self._read)
            self._read = None

    def _on_text(self) -> bool:
        """Read the text in the pipe; whether there was any."""
        if self._read is None:
            return False
        data = b""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._read, _CHUNK)
            if not data:
                self.close()
                return False
        self._said += data[: max(0, 2 * _MOST - len(self._said))]
        if self._asking and data:
            self._found += data[: max(0, _MOST - len(self._found))]
            self._go_on()
        return bool(data)

    def _go_on(self) -> None:
        has_others = OTHERS_END in self._found
        has_main = _END in self._found or self._found.endswith(_CUT)
        if self._main is not None:
            self._ask_main() if has_others else self._wait_for_others()
        elif has_others and has_main:
            self._end()
        else:
            self._wait(_SILENCE if has_main or _is_torn(self._found) else _PATIENCE)

    def _wait(self, seconds: float) -> None:
        """It is over when nothing comes for so long."""
        self._stop_waiting()
        self._timer = self._loop.call_later(seconds, self._is_silent)

    def _is_silent(self) -> None:
        # If the agent was stopped, the time is over although there is text to read.
        if not self._on_text():
            self._end()

    def _end(self) -> None:
        """Answer, or ask once more where both have written at once."""
        request, self._request = self._request, None
        if request and _is_torn(self._found):
            self._begin(*request)
        else:
            self._over()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _over(self) -> None:
        self._stop_waiting()
        self._main = self._request = None
        asking, self._asking = self._asking, []
        text = self._found.replace(OTHERS_END, b"").decode("utf-8", "replace")
        for answer in asking:
            answer(text)


def _is_torn(text: bytearray) -> bool:
    """Whether the main thread wrote before the others, which have ended, and these before it had ended."""
    others, others_end = text.find(_THREAD), text.find(OTHERS_END)
    main = text.find(_BEGIN)
    ends = [at for each in (_END, _CUT) if (at := text.find(each, main)) >= 0]
    main_end = min(ends, default=len(text))
    return 0 <= main < others_end and 0 <= others < main_end
