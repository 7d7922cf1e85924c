"""A rank's debugger: pdb at a `breakpoint()`, whose lines are typed in the notebook, and over the frames of a stop.

At a breakpoint the rank asks the notebook for each line, and the run's clock stands still meanwhile. A stopped
run's frames are kept until the next cell or call begins there; `%sky debug` looks at them, one pdb command at a
time. `input()` and `getpass()` say where to ask.
"""

from __future__ import annotations

import builtins
import getpass
import io
import os
import pdb  # noqa: T100 - it is what is offered
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from pathlib import Path
from types import FrameType, TracebackType
from typing import NoReturn

from skyward_nb.compat import torch_private
from skyward_nb.runtime.instance import instance_info
from skyward_nb.words.bounds import cut

_MOST_LETTERS = 20_000
_MOST_LINES = 400
_MOST_OF_A_VALUE = 200
_MOST_VALUES = 30
_GO_ON = {
    "n", "next", "s", "step", "c", "cont", "continue", "r", "return", "unt", "until", "j", "jump", "run",
    "restart", "b", "break", "tbreak", "commands", "debug", "interact",
}  # fmt: skip
"""Commands of pdb that need code which goes on, or a keyboard."""
_STOPS = re.compile(r"\b(?:breakpoint|set_trace)\(")
_PATIENCE = timedelta(days=7)
_NOT_THE_USERS = (str(Path(__file__).parent.parent), "<frozen ")
_AT_END = "this rank's code has ended, and cannot go on: where, up, down, list, p EXPRESSION and args look at it"
_INPUT = (
    "input() on a rank, which has no keyboard: ask in a cell of the notebook, `answer = input()`, and use that name in "
    "the cell for the ranks, to which it is sent"
)
_BREAKPOINT = (
    "breakpoint() stopped rank {0}, and nobody can type here: `%sky debug rank={0}` looks at its frames and "
    "names, until the next cell"
)


class _CellPdb(pdb.Pdb):
    """pdb in which cells have the names that people know."""

    _place_of: Callable[[str], str]

    def format_stack_entry(self, frame_lineno: tuple[FrameType, int], lprefix: str = ": ") -> str:
        """One frame: its place, its function and its line."""
        words = super().format_stack_entry(frame_lineno, lprefix)
        file = frame_lineno[0].f_code.co_filename
        return words.replace(self.canonic(file), self._place_of(file), 1)


class _FramePdb(_CellPdb):
    """pdb over the frames of a traceback, whose output is text."""

    def __init__(self, place_of: Callable[[str], str]) -> None:
        self._text = io.StringIO()
        super().__init__(stdin=io.StringIO(), stdout=self._text, nosigint=True, readrc=False)
        self.use_rawinput = False
        self._place_of = place_of

    def answer(self, line: str) -> str:
        """What a command prints."""
        self._text.seek(0)
        self._text.truncate()
        if (line.split() or [""])[0] in _GO_ON:
            return _AT_END
        self.onecmd(line)
        return cut(self._text.getvalue().rstrip("\n"), _MOST_LETTERS, _MOST_LINES)


class _Interrupted(BaseException):
    """An interrupt while a line was awaited, under a name that pdb lets pass."""


class _Keyboard(io.StringIO):
    """What pdb reads: it asks with what pdb wrote since the last line."""

    def __init__(self, written: io.StringIO) -> None:
        super().__init__()
        self._written = written

    def readline(self, _size: int = -1, /) -> str:
        """The next line; raises RuntimeError where nobody can type."""
        try:
            said = _ask(cut(_taken(self._written), _MOST_LETTERS, _MOST_LINES))
        except KeyboardInterrupt as interrupt:
            raise _Interrupted from interrupt
        if said is None:
            sys.settrace(None)
            raise RuntimeError(_BREAKPOINT.format(instance_info().pool_rank))
        return f"{said}\n"


class _LivePdb(_CellPdb):
    """pdb of code that runs; our own frames are passed over."""

    def __init__(self, place_of: Callable[[str], str]) -> None:
        written = io.StringIO()
        super().__init__(
            skip=["skyward_nb.*", "IPython.*"],
            stdin=_Keyboard(written),
            stdout=written,
            nosigint=True,
            readrc=False,
        )
        self.use_rawinput = False
        self.prompt = ""
        self.has_asked: bool = False
        self._place_of = place_of

    def interaction(self, frame: FrameType | None, traceback: TracebackType | None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Read and obey lines until one has the code go on; raises KeyboardInterrupt."""
        self.has_asked = True
        try:
            super().interaction(frame, traceback)
        except _Interrupted:
            sys.settrace(None)
            raise KeyboardInterrupt from None

    def user_call(self, frame: FrameType, argument_list: None) -> None:
        """Stop in a function that is stepped into; the parts of a cell are not called by anybody."""
        if frame.f_code.co_name != "<module>":
            super().user_call(frame, argument_list)

    def user_return(self, frame: FrameType, return_value: object) -> None:
        """Stop at a function's end; at that of a cell's statements, go on with its last expression."""
        if frame.f_code.co_name == "<module>" and self.has_asked:
            self.set_step()
        else:  # as after a breakpoint that is the last of them
            super().user_return(frame, return_value)

    def get_stack(
        self, f: FrameType | None, t: TracebackType | None
    ) -> tuple[list[tuple[FrameType, int]], int]:
        """The frames of the user's code alone."""
        stack, _ = super().get_stack(f, t)
        own = [each for each in stack if not each[0].f_code.co_filename.startswith(_NOT_THE_USERS)]
        return own, max(0, len(own) - 1)


def _taken(written: io.StringIO) -> str:
    text = written.getvalue()
    written.seek(0)
    written.truncate()
    return text.rstrip("\n")


_ask: Callable[[str], str | None] = lambda _: None  # noqa: E731 - replaced on ranks
_live: _LivePdb | None = None
_trace: TracebackType | None = None
_place_of: Callable[[str], str] = str
_pdb: _FramePdb | None = None


def install(place_of: Callable[[str], str], ask: Callable[[str], str | None]) -> None:
    """From now on `breakpoint()` opens pdb, and `input()` and `getpass()` say what to do.

    `place_of` names files, `ask` shows a text and returns the line that a person typed, None where nobody can.
    """
    global _place_of, _ask
    _place_of, _ask = place_of, ask
    builtins.input = _no_input
    getpass.getpass = _no_password
    sys.breakpointhook = _stop
    pdb.set_trace = _stop


def keep(trace: TracebackType | None) -> None:
    """Keep the frames of a run that was stopped; None: let those go that are kept."""
    global _trace, _pdb
    _trace, _pdb = trace, None


def patience_for(texts: Iterable[str], is_debugged: bool = False) -> AbstractContextManager[None]:
    """While code of these texts runs, collectives of torch wait for a rank that may stand at a breakpoint."""
    if is_debugged or any(_STOPS.search(text) for text in texts):
        return torch_private.limits_of_collectives(_PATIENCE)
    return nullcontext()


def end_tracing() -> None:
    """Trace no more: a breakpoint ends with its run."""
    global _live
    if _live is not None:
        _live = None
        sys.settrace(None)


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
    if _pdb is None:
        return "the frames are gone: a cell ran there since"
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
    raise EOFError(_INPUT)


def _no_password(prompt: str = "", stream: object = None, **_: object) -> str:
    """What `input()` says, which is another thing in a script, of `getpass()`."""
    try:
        return input(prompt)
    except EOFError as error:
        raise EOFError(str(error).replace("input()", "getpass()")) from None


def _stop(*args: object, **keywords: object) -> object:
    global _live
    chosen = os.environ.get("PYTHONBREAKPOINT", "")
    if chosen not in ("", "pdb.set_trace"):  # 0, or a debugger of the user's own
        return sys.__breakpointhook__(*args, **keywords)  # noqa: T100 - as the user chose
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(_BREAKPOINT.format(instance_info().pool_rank))
    _live = _live or _LivePdb(_place_of)
    _live.has_asked = False
    _live.set_trace(sys._getframe().f_back)
    return None
