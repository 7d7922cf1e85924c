"""Values that go both ways between a call on a rank and its caller, while it runs.

A generator's values go home as it yields them. It may be a few values ahead of its caller, unless
it heeds what is sent to it: then it waits at each `yield`, as it would here. A generator among the
arguments stays where it is, and a rank asks for its values one by one.
"""

from __future__ import annotations

import dis
import itertools
from collections.abc import Callable, Generator, Iterator
from types import CodeType, GeneratorType
from typing import Any, Protocol

AHEAD = 16
"""Values that a generator may have yielded that nobody has taken."""


class CallerAnswer(Protocol):
    """The caller's answer to a generator: go on for so many values, with this one; or end."""

    @property
    def count(self) -> int:
        """Values that were taken since the last answer."""
        ...

    @property
    def closed(self) -> bool:
        """Whether nobody wants more."""
        ...

    @property
    def thrown(self) -> object:
        """What is to be raised in it, if anything."""
        ...


class CallerChannel(Protocol):
    """A rank's way home."""

    def give(self, value: object) -> None:
        """Send a value that was yielded; raises `PayloadError`."""
        ...

    def is_answered(self) -> bool:
        """Whether there is an answer."""
        ...

    def answer(self) -> CallerAnswer:
        """Wait for the next answer."""
        ...

    def sent(self, answer: CallerAnswer) -> object:
        """The value that an answer sends into the generator; raises the exception that it throws into it."""
        ...

    def ask(self, stream: int) -> object:
        """The next value of a generator that stayed at home; raises StopIteration at its end."""
        ...


_wire: CallerChannel | None = None


def connect(wire: CallerChannel) -> None:
    """Set how values go, on a rank."""
    global _wire
    _wire = wire


class RemoteGenerator(Iterator[Any]):
    """Stands on a rank for the generator number `stream` among a call's arguments."""

    def __init__(self, stream: int) -> None:
        self._stream = stream

    def __next__(self) -> Any:
        if _wire is None:
            raise RuntimeError("a generator among the arguments gives its values on ranks only")
        return _wire.ask(self._stream)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return RemoteGenerator, (self._stream,)


def send_all(values: GeneratorType[Any, Any, Any]) -> Any:
    """Send home what a generator yields, as far as somebody takes it; what it returns."""
    wire = _wire
    assert wire is not None
    room = 1 if heeds_what_is_sent(values.gi_code) else AHEAD
    step: Callable[[], Any] = lambda: next(values)  # noqa: E731 - replaced at each turn
    while True:
        try:
            wire.give(step())
        except StopIteration as end:
            return end.value
        room -= 1
        step = lambda: next(values)  # noqa: E731
        while room <= 0 or wire.is_answered():
            answer = wire.answer()
            if answer.closed:
                values.close()
                return None
            room += answer.count
            step = _step(wire, answer, values)
            if answer.thrown is not None:
                break  # before a later answer


def _step(
    wire: CallerChannel, answer: CallerAnswer, values: Generator[Any, Any, Any]
) -> Callable[[], Any]:
    def step() -> Any:
        try:
            sent = wire.sent(answer)
        except BaseException as thrown:  # noqa: BLE001 - whatever is thrown into it
            return values.throw(thrown)
        return values.send(sent)

    return step


def heeds_what_is_sent(code: CodeType) -> bool:
    """Whether a generator does something with what `yield` gives, or delegates to others that may."""
    steps = [each for each in dis.get_instructions(code) if each.opname not in _NOTHING]
    for step, after in itertools.pairwise(steps):
        if step.opname == "SEND" or (step.opname == "YIELD_VALUE" and after.opname != "POP_TOP"):
            return True
    return False


_NOTHING = {"RESUME", "CACHE", "NOP", "EXTENDED_ARG"}
