"""A rank without a keyboard: what `breakpoint()` and `input()` say there, and pdb over the frames of its last stop.

A stopped run's frames are kept until the next cell or call begins there; `%sky debug` looks at them, one
pdb command at a time.
"""

from __future__ import annotations

import builtins
import io
import os
import pdb  # noqa: T100 - it is what is offered
import sys
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import NoReturn

from skyward_nb.runtime.instance import instance_info
from skyward_nb.words.bounds import cut

_MOST_LETTERS = 20_000
_MOST_LINES = 400
_MOST_OF_A_VALUE = 200
_MOST_VALUES = 30
_GO_ON = frozenset(
    [
        "n",
        "next",
        "s",
        "step",
        "c",
        "cont",
        "continue",
        "r",
        "return",
        "unt",
        "until",
        "j",
        "jump",
        "run",
        "restart",
        "b",
        "break",
        "tbreak",
    ]
)
_AT_END = "this rank's code has ended, and cannot go on: where, up, down, list, p EXPRESSION and args look at it"
_INPUT = (
    "input() on rank {}, which has no keyboard: ask in a cell of the notebook, `answer = input()`, and "
    "use that name in the cell for the ranks, to which it is sent"
)
_BREAKPOINT = (
    "breakpoint() stopped rank {0}, which has no keyboard: `%sky debug rank={0}` looks at its frames and "
    "names, until the next cell"
)


class _FramePdb(pdb.Pdb):
    """pdb over the frames of a traceback, whose output is text; cells have the names that people know."""

    def __init__(self, place_of: Callable[[str], str]) -> None:
        self._text = io.StringIO()
        super().__init__(stdin=io.StringIO(), stdout=self._text, nosigint=True, readrc=False)
        self.use_rawinput = False
        self._place_of = place_of

    def format_stack_entry(self, frame_lineno: tuple[FrameType, int], lprefix: str = ": ") -> str:
        """One frame: its place, its function and its line."""
        words = super().format_stack_entry(frame_lineno, lprefix)
        file = frame_lineno[0].f_code.co_filename
        return words.replace(self.canonic(file), self._place_of(file), 1)

    def answer(self, line: str) -> str:
        """What a command prints."""
        self._text.seek(0)
        self._text.truncate()
        if (line.split() or [""])[0] in _GO_ON:
            return _AT_END
        self.onecmd(line)
        return cut(self._text.getvalue().rstrip("\n"), _MOST_LETTERS, _MOST_LINES)


_trace: TracebackType | None = None
_place_of: Callable[[str], str] = str
_pdb: _FramePdb | None = None


def install(place_of: Callable[[str], str]) -> None:
    """From now on `breakpoint()` and `input()` of this process say what to do; `place_of` names files."""
    global _place_of
    _place_of = place_of
    builtins.input = _no_input
    sys.breakpointhook = _stop
    pdb.set_trace = _stop


def keep(trace: TracebackType | None) -> None:
    """Keep the frames of a run that was stopped; None: let those go that are kept."""
    global _trace, _pdb
    _trace, _pdb = trace, None


def begin() -> str:
    """Open pdb over the kept frames; the innermost one in pdb's words, empty where none are kept."""
    global _pdb
    if _trace is None:
        return ""
    _pdb = _FramePdb(_place_of)
    _pdb.reset()
    _pdb.setup(None, _trace)
    return _pdb.format_stack_entry(_pdb.stack[_pdb.curindex], "\n-> ")


def command(line: str) -> str:
    """What a command of pdb prints."""
    if _pdb is None and not begin():
        return "the frames are gone: a cell ran there since"
    assert _pdb is not None
    return _pdb.answer(line)


def frames() -> str:
    """The kept frames with the reprs of their names: all that can be seen without asking more."""
    lines: list[str] = []
    for frame, number in traceback.walk_tb(_trace):
        lines.append(f"{_place_of(frame.f_code.co_filename)}({number}){frame.f_code.co_name}()")
        names = {k: v for k, v in frame.f_locals.items() if not k.startswith("_")}
        if frame.f_locals is not frame.f_globals:
            lines += [
                f"    {name} = {_shown(names[name])}" for name in sorted(names)[:_MOST_VALUES]
            ]
    return cut("\n".join(lines), _MOST_LETTERS, _MOST_LINES)


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - a user's broken __repr__
        return f"<{type(value).__name__}, its repr raises {type(error).__name__}>"
    return cut(text, _MOST_OF_A_VALUE, 3)


def _no_input(_prompt: object = "", /) -> NoReturn:
    raise EOFError(_INPUT.format(instance_info().pool_rank))


def _stop(*args: object, **keywords: object) -> object:
    chosen = os.environ.get("PYTHONBREAKPOINT", "")
    if chosen not in ("", "pdb.set_trace"):  # 0, or a debugger of the user's own
        return sys.__breakpointhook__(*args, **keywords)  # noqa: T100 - as the user chose
    raise RuntimeError(_BREAKPOINT.format(instance_info().pool_rank))
