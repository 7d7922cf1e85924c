"""Which threads of ranks stand, the numbers under which a front end's debugger knows them, and what they say, read. Pure.

Front ends have one space of numbers for threads, frames and variables; each rank's debugger has its own. Numbers
here begin above all that the kernel's own debugger gives.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec

from skyward_nb.words.decoding import converted, from_json

Dap = dict[str, Any]
"""A message of the Debug Adapter Protocol, whose form is not ours."""

_FIRST = 1 << 52
"""Above addresses and process ids, and a whole number in JavaScript."""
NUMBERS = ("threadId", "frameId", "variablesReference", "srcFrameId")
"""The parts of a request that are numbers of here."""


class _Message(msgspec.Struct):
    """The parts of a message that everybody reads."""

    type: Literal["event", "response"]
    event: str = ""
    request_seq: int = 0
    body: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class _Stop(msgspec.Struct):
    """The body of the event `stopped`."""

    thread: int = msgspec.field(name="threadId")
    reason: str = ""


def read_message(text: str) -> Dap | None:
    """What a rank's debugger says; None where that is no message of a debugger: code on a rank may send anything."""
    try:
        message = from_json(text, _Message)
        if message.event == "stopped":
            converted(message.body, _Stop)
        return {"body": {}, **from_json(text, dict)}
    except (msgspec.MsgspecError, RecursionError):
        return None


def read_bundle(said: str) -> dict[object, object]:
    """What a rank's formatter gave, by type; its text where that cannot be read."""
    try:
        data, _ = ast.literal_eval(said)
        return dict(data)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return {"text/plain": said}


class RankKey(NamedTuple):
    """A rank of a pool."""

    pool: str
    rank: int


@dataclass
class Standing:
    """Where a thread of a rank stands: in which run, and what its debugger said of it."""

    run: int
    thread: int
    reason: str
    words: str = ""


@dataclass
class RankThreads:
    """The threads that stand, by rank, the one that a front end looks at first, and the numbers that mean something."""

    standing: dict[RankKey, Standing] = field(default_factory=dict[RankKey, Standing])
    focus: RankKey | None = None
    _numbers: dict[RankKey, dict[int, int]] = field(default_factory=dict[RankKey, dict[int, int]])
    _meant: dict[int, tuple[RankKey, int]] = field(default_factory=dict[int, tuple[RankKey, int]])
    _next: itertools.count[int] = field(default_factory=lambda: itertools.count(_FIRST))

    def number(self, key: RankKey, theirs: int) -> int:
        """The number here of what a rank's debugger calls `theirs`; 0, nothing, stays."""
        if not theirs:
            return 0
        given = self._numbers.setdefault(key, {})
        if (known := given.get(theirs)) is None:
            known = given[theirs] = next(self._next)
            self._meant[known] = key, theirs
        return known

    def meant(self, number: object) -> tuple[RankKey, int] | None:
        """The rank and its debugger's number for a number here; None for one of the kernel's own."""
        return self._meant.get(number) if isinstance(number, int) else None

    def is_past(self, asked: Mapping[str, object]) -> bool:
        """Whether a request is about what is no more: a rank that stood has gone on, or its run has ended."""
        numbers = (asked.get(name) for name in NUMBERS)
        return any(
            isinstance(each, int) and each >= _FIRST and each not in self._meant for each in numbers
        )

    def forget(self, key: RankKey, *, but_thread: int = 0) -> None:
        """Let a rank's numbers mean nothing any more, but that of its thread, if that lives on."""
        given = self._numbers.pop(key, {})
        if but_thread in given:
            self._numbers[key] = {but_thread: given.pop(but_thread)}
        for number in given.values():
            del self._meant[number]

    def stands(self, key: RankKey, where: Standing) -> None:
        """A rank's thread stands; the first of all is looked at."""
        self.standing[key] = where
        if self.focus is None:
            self.focus = key

    def goes_on(self, key: RankKey) -> bool:
        """A rank's thread stands no more, and its frames are no more; whether it stood."""
        where = self.standing.pop(key, None)
        if where is not None:
            self.forget(key, but_thread=where.thread)
        return where is not None

    def lets_focus_go(self) -> None:
        """Look at the first of those that stand, if any."""
        self.focus = min(self.standing, default=None)

    def in_order(self) -> list[RankKey]:
        """The ranks that stand: the one that is looked at, then the others."""
        return sorted(self.standing, key=lambda key: (key != self.focus, key))

    def renumbered(self, key: RankKey, answer: Dap) -> Dap:
        """An answer of a rank's debugger, with numbers of here."""
        return {name: self._with_numbers(key, value, name) for name, value in answer.items()}

    def _with_numbers(self, key: RankKey, value: object, name: str) -> Any:
        match value:
            case dict():
                frames = name == "stackFrames"
                return {
                    str(part): self._with_numbers(
                        key, each, "frameId" if frames and part == "id" else str(part)
                    )
                    for part, each in value.items()
                }
            case list():
                return [self._with_numbers(key, each, name) for each in value]
            case int() if name in ("threadId", "frameId", "variablesReference"):
                return self.number(key, value)
            case _:
                return value
