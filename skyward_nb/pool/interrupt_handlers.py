"""What SIGINT does in the main thread while our code must not be left in the middle."""

from __future__ import annotations

import inspect
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Self

from skyward_nb.system.end_signals import ToldToEnd


class OurHandler:
    """A handler of SIGINT that is there for a while; within `as_before`, the one before it is."""

    def __init__(self) -> None:
        self._before: Any = None
        self.is_there: bool = False

    def __call__(self, _number: int, _frame: object) -> None:
        """Handle it."""

    def begin(self) -> None:
        """From now on it handles SIGINT; `end` is to follow."""
        self._before = signal.signal(signal.SIGINT, self)
        self.is_there = True

    def end(self) -> None:
        """From now on the one before does."""
        self.is_there = False
        if self._before is not None:  # as it is where Python comes to its end
            signal.signal(signal.SIGINT, self._before)

    @contextmanager
    def as_before(self, *, for_user: bool = False) -> Generator[None]:
        """While inside, SIGINT acts as before; `for_user`, whose code may take for ever, nothing is put off, either."""
        before = self._before
        while for_user and isinstance(before, PutOff):
            before = before._before
        signal.signal(signal.SIGINT, before)
        try:
            yield
        finally:
            # It may have ended before this, by an exception: then there is nothing to put back.
            if self.is_there:
                signal.signal(signal.SIGINT, self)


class InterruptTaken(OurHandler):
    """A handler by which an interrupt raises nothing: somebody takes it."""

    def __init__(self, take: Callable[[], None]) -> None:
        super().__init__()
        self._take = take

    def __call__(self, _number: int, _frame: object) -> None:
        """Handle it."""
        self._take()


@contextmanager
def calm() -> Generator[None]:
    """While inside, SIGINT does nothing: the code inside must not be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = InterruptTaken(lambda: None)
    handler.begin()
    try:
        yield
    finally:
        handler.end()


class PutOff(OurHandler):
    """`with PutOff():` an interrupt waits until the end: what is taken inside is given back before it raises.

    An error of its own comes instead. What may take long is to be within `as_before`, or to `check` now and then. Where
    others take interrupts, or put them off, or none arrive, it puts off none.
    """

    _came = 0

    def __call__(self, number: int, _frame: object) -> None:
        """Handle it, or another signal that ends the program: see `told_to_end`."""
        self._came = max(self._came, number)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self.begin()
            if isinstance(self._before, OurHandler) or not callable(self._before):
                self.end()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.is_there:
            self.end()
        if self._came and kind is None:
            self.check()

    def check(self) -> None:
        """Have one that came act as before: it raises KeyboardInterrupt, as a rule."""
        number = self.took()
        if number == signal.SIGINT:
            self._before(number, inspect.currentframe())
        elif number:
            raise ToldToEnd(number)

    def took(self) -> int:
        """The signal that came, which nobody else gets then, or 0."""
        came, self._came = self._came, 0
        return came

    @contextmanager
    def as_before(self, *, for_user: bool = False) -> Generator[None]:
        """While inside, SIGINT acts as before; at once, if one came."""
        if not self.is_there:
            yield
            return
        with super().as_before(for_user=for_user):
            self.check()
            yield
