"""The signals by which a process is told to end, SIGTERM and SIGHUP, where nobody else handles them."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Generator

Handler = Callable[[int, object], None]


class ToldToEnd(SystemExit):
    """The end of a program by a signal: 128 + its `number`, as shells tell it."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number: int = number


@contextlib.contextmanager
def handled_by(handler: Handler) -> Generator[None]:
    """While inside, those that would end the process call `handler`; for the main thread.

    One that is ignored, as by nohup, or that has a handler stays so, also one that got its handler inside.
    """
    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in numbers:
            if signal.getsignal(number) is handler:
                signal.signal(number, signal.SIG_DFL)
