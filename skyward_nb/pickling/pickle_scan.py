"""What a pickle of plain values would do, looked at before it is read.

Only opcodes that list plain values are taken. What pickle's own reader does is done here with the sizes of the
values alone: it has no bound on how deep it hashes tuples, and a tuple of shared tuples takes as long to hash as
all of them written out.
"""

from __future__ import annotations

import io
import pickletools
from typing import Any

from skyward_nb.words.controls import spelt

ONLY = "trust=values takes numbers, text, arrays and tables back, and containers of them"
_LEAVES = {
    "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT",
    "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8",
    "BYTEARRAY8", "EMPTY_TUPLE", "EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET", "NEXT_BUFFER",
}  # fmt: skip
"""Opcodes that put one value on the stack, and do nothing else."""
_OPCODES = {
    *_LEAVES, "PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "MEMOIZE", "BINGET",
    "LONG_BINGET", "BINPERSID", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "APPEND", "APPENDS",
    "SETITEM", "SETITEMS", "ADDITEMS", "FROZENSET", "READONLY_BUFFER",
}  # fmt: skip
"""What lists of plain values are made of: none of these names, calls, or sets the state of an object.

Nor does one choose its place in the memo (`LONG_BINPUT`): the memo has room up to the highest place.
"""
_DEEPEST = 100
MANY = 1_000_000
_HASHED_PER_BYTE = 20
_FRAME_HEAD = 9


class NotPlain(Exception):
    """What came is no value of numbers, text, arrays and tables alone; the text quotes it, for a terminal."""

    def __init__(self, why: str) -> None:
        super().__init__(spelt(why))


def scan(data: memoryview) -> None:
    """Raise `NotPlain` for a pickle that does more than to list plain values."""
    words: list[Any] = ["?", "?"]
    sizes = _Sizes(len(data))
    before = frame_end = 0
    try:
        for opcode, argument, place in pickletools.genops(io.BytesIO(data)):
            at = place or 0
            name = opcode.name
            if name not in _OPCODES:
                raise NotPlain(f"it {_what(name, argument, words)}: {ONLY}")
            # There, pickle's reader in C drops the rest of the frame, and so reads something else.
            if before < frame_end < at or (name == "FRAME" and at < frame_end):
                raise NotPlain("an instruction of it crosses the end of a frame")
            if name == "FRAME":
                frame_end = at + _FRAME_HEAD + int(argument or 0)
            elif type(argument) is str:
                words = [words[1], argument]
            before = at
            sizes.take(name, argument)
    except NotPlain:
        raise
    except Exception as error:  # noqa: BLE001 - pickletools raises what the bytes make it raise
        raise NotPlain(f"it is not a pickle ({error})") from None


def _what(opcode: str, argument: Any, words: list[Any]) -> str:
    match opcode:
        case "STACK_GLOBAL":
            return f"names {words[0][:100]}.{words[1][:100]}"
        case "GLOBAL" | "INST":
            return f"names {str(argument)[:200].replace(' ', '.')}"
        case _:
            return f"has the instruction {opcode}"


_ONE = (1, 0)
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Sizes:
    """The reader's stack and memo, of each value the number of values in it and its depth as a hash sees them.

    A hash goes into tuples alone: those of sets are kept, and lists have none.
    """

    def __init__(self, length: int) -> None:
        self._most = MANY + length
        self._hashes_left = MANY + _HASHED_PER_BYTE * length
        self._stack: list[tuple[int, int]] = []
        self._marks: list[int] = []
        self._memo: list[tuple[int, int]] = []

    def take(self, opcode: str, argument: Any) -> None:  # noqa: C901 - a table of opcodes
        """Do what an instruction does; raises `NotPlain`, or IndexError where the reader fails, too."""
        stack = self._stack
        if opcode in _LEAVES:
            stack.append(_ONE)
            return
        match opcode:
            case "MEMOIZE":
                self._memo.append(stack[-1])
            case "BINGET" | "LONG_BINGET":
                stack.append(self._memo[argument])
            case "PROTO" | "FRAME" | "STOP" | "READONLY_BUFFER":
                pass
            case "MARK":
                self._marks.append(len(stack))
            case "POP":
                if self._marks and self._marks[-1] == len(stack):
                    self._marks.pop()
                else:
                    stack.pop()
            case "POP_MARK" | "APPENDS":
                self._marked()
            case "APPEND":
                stack.pop()
            case "BINPERSID":
                stack[-1] = _ONE  # none of those that are made of parts is a tuple of tuples
            case "TUPLE":
                self._tuple(self._marked())
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                items = stack[-_TUPLES[opcode] :]
                del stack[-_TUPLES[opcode] :]
                self._tuple(items)
            case "SETITEM":
                self._hash(stack[-2:-1])
                del stack[-2:]
            case "SETITEMS":
                self._hash(self._marked()[::2])
            case "ADDITEMS":
                self._hash(self._marked())
            case "FROZENSET":
                self._hash(self._marked())
                stack.append(_ONE)
            case _:
                raise NotPlain(f"it has the instruction {opcode}: {ONLY}")

    def _marked(self) -> list[tuple[int, int]]:
        at = self._marks.pop()
        items = self._stack[at:]
        del self._stack[at:]
        return items

    def _tuple(self, items: list[tuple[int, int]]) -> None:
        size = 1 + sum(each for each, _ in items)
        depth = 1 + max((each for _, each in items), default=0)
        if depth > _DEEPEST or size > self._most:
            raise NotPlain("its tuples are nested too deep, or too many times")
        self._stack.append((size, depth))

    def _hash(self, keys: list[tuple[int, int]]) -> None:
        self._hashes_left -= sum(size for size, _ in keys)
        if self._hashes_left < 0:
            raise NotPlain("its keys have too many values in them")
