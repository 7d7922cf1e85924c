r"""A parser of the text that `faulthandler` writes about the threads of a rank. Pure.

The format is that of CPython 3.11 to 3.14, source: `Python/traceback.c`. It is ASCII: other
characters are `\xe9`, `\u20ac` or `\U0001f600`.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from skyward_nb.words.controls import spelt

_THREAD = re.compile(
    r"(Current thread|Thread|Stack)(?: (0x[0-9a-f]+))?(?: \[(.*)\])? ?\(most recent call first\)"
)
_FRAME = re.compile(r'  File "(.*)", line (\d+|\?\?\?) in (.*)')
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")
_OURS = (
    ("/skyward_nb/node/uplink.py", "_flush_late"),
    ("/skyward_nb/node/control_thread.py", "_serve"),
)


@dataclass(frozen=True)
class StackFrame:
    """A frame: its file, its line (0 where that is not known) and the function's name."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class ThreadStack:
    """A thread with its frames, innermost first; a thread without a name has its number instead."""

    name: str
    is_main: bool
    frames: tuple[StackFrame, ...]


def threads(text: str) -> tuple[ThreadStack, ...]:
    """The threads of a rank, the main thread first; our own threads are left out.

    The main thread writes the text on request, so it is the current thread. In the text of a crash, the
    current thread is the one that crashed: there, the main thread is the last and oldest.
    """
    heads: list[tuple[str, bool]] = []
    frames: list[list[StackFrame]] = []
    crashed = False
    for line in text.splitlines():
        crashed = crashed or line.startswith("Fatal Python error")
        if head := _THREAD.match(line):
            heads.append((head[3] or head[2] or "", head[1] != "Thread"))
            frames.append([])
        elif heads and (found := _FRAME.match(line)):
            number = int(found[2]) if found[2].isdigit() else 0
            frames[-1].append(StackFrame(_plain(found[1]), number, _plain(found[3])))
    last = len(heads) - 1
    everyone = [
        ThreadStack(name, at == last if crashed else is_current, tuple(found))
        for at, ((name, is_current), found) in enumerate(zip(heads, frames, strict=True))
    ]
    return tuple(sorted(filter(_is_the_users, everyone), key=lambda thread: not thread.is_main))


def _is_the_users(thread: ThreadStack) -> bool:
    return thread.is_main or not any(
        spot.function == function and spot.file.endswith(file)
        for spot in thread.frames
        for file, function in _OURS
    )


def _plain(text: str) -> str:
    """The text as it was, but for what a terminal would obey."""
    return spelt(_ESCAPED.sub(_character, text))


def _character(found: re.Match[str]) -> str:
    number = int(found[1] or found[2] or found[3], 16)
    return chr(number) if number <= sys.maxunicode else found[0]
