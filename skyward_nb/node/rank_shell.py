"""IPython's shell as ranks use it: magics, `await`, rich display, tracebacks; no history.

It is made once, in the forge. It prints nothing by itself: values, exceptions and displays are sent.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import io
import linecache
import marshal
import sys
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any

import IPython
from IPython.core.async_helpers import get_asyncio_loop
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.profiledir import ProfileDir
from traitlets import Type
from traitlets.config import Config

from skyward_nb.compat import ipython_private
from skyward_nb.compat.ipython_private import cell_number
from skyward_nb.node.pip_once import PipOnce
from skyward_nb.node.rank_displays import RankDisplays, ValueHook
from skyward_nb.node.uplink import encodable, text_of
from skyward_nb.protocol.commands import Run, SourceFile
from skyward_nb.protocol.events import Event
from skyward_nb.protocol.message_parts import CodeFrame, Frame
from skyward_nb.runtime import debugging
from skyward_nb.runtime.remote_generators import send_all
from skyward_nb.system.traceback_filter import with_words, without_frames, without_repeats
from skyward_nb.words.bounds import bounded_lines
from skyward_nb.words.source_code import is_library

_LONGEST_LINE = 500
_MOST_FRAMES = 60
_OF_NO_TEXT = "<class 'str'>: (<class "
"""So begins what IPython says of an exception whose `__str__` raises."""
_NOT_THE_USERS = (
    str(Path(__file__).parent.parent),
    str(Path(IPython.__file__).parent),
    str(Path(importlib.__file__).parent),
    "<frozen importlib",
    "<frozen runpy>",
    "<%sky>",
)


# Files with more lines are not parsed to show a few of them: those of a process group take half a
# second, on each rank.
ipython_private.show_files_plainly(more_lines=2000)


class RankShell(InteractiveShell):
    """The shell of a rank; `run` executes one cell in its namespace."""

    execution_count: int
    displayhook_class: Any = Type(ValueHook)
    display_pub_class: Any = Type(RankDisplays)
    shown: tuple[str, ...] = ()
    files: frozenset[str] = frozenset()
    """Files of the user's own, as a script is, that functions came from."""
    listen: Callable[[int], None] = staticmethod(lambda _run: None)
    """From now on an interrupt of this run raises."""
    calm: Callable[[], None] = staticmethod(lambda: None)
    """From now on none does: in what IPython calls before and after a cell it would be printed."""

    def init_completer(self) -> None:
        """Nobody types here: what completes is made when it is asked for, and not at each start of a pool."""

    @functools.cached_property
    def Completer(self) -> Any:  # noqa: N802 - IPython's name
        """What completes names, for code that sets or asks it."""
        super().init_completer()
        return vars(self)["Completer"]

    def showtraceback(self, *args: Any, **kwargs: Any) -> None:
        """Print how an exception reads that ends no cell: one of an object that cannot be shown."""
        before = self.shown
        self.keep_traceback(args[0] if args else None)
        print("\n".join(self.shown), file=sys.stderr)
        self.shown = before

    def keep_traceback(self, info: Any = None) -> None:
        """Keep how the exception reads, in IPython's words, without printing it."""
        try:
            kind, value, trace = ipython_private.exception_info(self, info)
            own = self.from_the_cell(trace)
            if value is not None:
                _take_ours_away(value)
            if value is not None and (_has_group(value) or not self._is_of_a_cell(trace)):
                # IPython's own words for a group lack the exceptions in it; a script is no notebook.
                lines = self._as_python_shows(kind, value, own)
            elif isinstance(value, SyntaxError) and own is None:
                lines = "".join(traceback.format_exception_only(value)).splitlines()
            else:
                lines = self._as_ipython_shows(kind, value, own)
            self.shown = bounded_lines(encodable(line) for line in lines)
        except Exception as error:  # noqa: BLE001 - a user's broken __str__ or __repr__
            self.shown = (f"(the traceback could not be shown: {type(error).__name__})",)

    def _as_ipython_shows(
        self, kind: type[BaseException], value: BaseException | None, trace: TracebackType | None
    ) -> list[str]:
        """The traceback as IPython shows it; of a recursion a few frames, as 1,000 take seconds, and nobody reads them."""
        trace, left_out = without_repeats(trace, _MOST_FRAMES)
        lines = self.InteractiveTB.structured_traceback(kind, value, trace, tb_offset=0)
        if value is not None and lines and lines[-1].startswith(_OF_NO_TEXT):
            lines[-1] = f"{kind.__name__}: {text_of(value)}"
        return with_words(lines, trace, left_out)

    def _as_python_shows(
        self, kind: type[BaseException], value: BaseException, trace: TracebackType | None
    ) -> list[str]:
        """The traceback with all that hangs on the exception; cells by the names people know."""
        whole = traceback.TracebackException(kind, value, trace)
        waiting: list[traceback.TracebackException | None] = [whole]
        while waiting:
            each = waiting.pop()
            if each is None:
                continue
            frames = [f for f in each.stack if not f.filename.startswith(_NOT_THE_USERS)]
            for frame in frames:
                frame.filename = self.name_of(frame.filename)
            each.stack[:] = frames
            waiting += [each.__cause__, each.__context__, *(each.exceptions or ())]
        return "".join(whole.format()).splitlines()

    def _is_of_a_cell(self, trace: TracebackType | None) -> bool:
        """Whether a traceback goes through a cell, or nowhere."""
        if trace is None:
            return True
        files = (frame.f_code.co_filename for frame, _ in traceback.walk_tb(trace))
        return any(cell_number(self, file) for file in files)

    def from_the_cell(self, trace: TracebackType | None) -> TracebackType | None:
        """The traceback from the cell's own first line on, without frames of this package."""
        own = trace
        while own is not None and not self._is_users(own.tb_frame.f_code.co_filename):
            own = own.tb_next
        if own is None:
            own = trace
            while own is not None and own.tb_frame.f_code.co_filename.startswith(_NOT_THE_USERS):
                own = own.tb_next
        return without_frames(own, _is_ours)

    def enable_gui(self, gui: str | None = None) -> None:
        """Nothing: a rank has no windows, and `%matplotlib inline` needs none."""

    def ask_exit(self) -> None:
        """`exit` and `quit` end the cell, as `sys.exit()` does."""
        raise SystemExit(0)

    def connect(self, rank: int, emit: Callable[[Event], None]) -> None:
        """From now on displays are events of this rank."""
        assert isinstance(self.display_pub, RankDisplays)
        self.display_pub.rank = rank
        self.display_pub.emit = emit
        # For good, where IPython sets and unsets them around each cell.
        self.builtin_trap.activate()
        self.display_trap.set()

    def learn(self, source: SourceFile) -> None:
        """Know a cell's text by the file name its code carries, for tracebacks."""
        # Not splitlines(), which also cuts where Python's own lines do not end.
        lines = io.StringIO(source.text).readlines()
        linecache.cache[source.filename] = len(source.text), None, lines, source.filename
        if source.number:
            ipython_private.learn_cell(self, source.filename, source.number)
        else:
            self.files |= {source.filename}

    def run(self, command: Run, call: Callable[[], object] | None = None) -> object:
        """Execute a cell, or a call; the last expression's value, or the result. Raises what it raises."""
        if self.execution_count != command.number:
            self.execution_count = command.number
        self.shown = ()
        self.events.trigger("pre_execute")
        value: object = None
        if not command.aside:
            debugging.keep(None)
        try:
            parts = [
                marshal.loads(part) if part is not None else None  # noqa: S302 - from our own kernel
                for part in (command.body, command.last)
            ]
            self.listen(command.run)
            value = self._execute(*parts) if call is None else _called(call)
            if value is not None and not command.aside:
                self.user_ns["_"] = value
            self.calm()
        except BaseException as error:
            self.calm()
            if not command.aside:
                debugging.keep(self.from_the_cell(error.__traceback__))
            raise
        finally:
            debugging.end_tracing()
            self.events.trigger("post_execute")
        return value

    def _execute(self, body: CodeType | None, last: CodeType | None) -> object:
        """Run the statements, then the expression; in one coroutine if either awaits."""
        parts = [part for part in (body, last) if part is not None]
        if any(part.co_flags & inspect.CO_COROUTINE for part in parts):
            return _run_to_its_end(self._await(body, last))
        if body is not None:
            eval(body, self.user_ns)  # noqa: S307 - running code is the point
        return eval(last, self.user_ns) if last is not None else None  # noqa: S307

    async def _await(self, body: CodeType | None, last: CodeType | None) -> object:
        value: Any = None
        for part in (body, last):
            if part is not None:
                value = eval(part, self.user_ns)  # noqa: S307
                if part.co_flags & inspect.CO_COROUTINE:
                    value = await value
        return value if last is not None else None

    def frames_of(self, trace: TracebackType | None) -> tuple[CodeFrame, ...]:
        """The frames of a traceback from the user's first on, the outermost and innermost of many."""
        frames = [
            CodeFrame(f.f_code.co_filename, line, f.f_code.co_name)
            for f, line in traceback.walk_tb(self.from_the_cell(trace))
        ]
        half = _MOST_FRAMES // 2
        return tuple(frames if len(frames) <= _MOST_FRAMES else [*frames[:half], *frames[-half:]])

    def _is_users(self, filename: str) -> bool:
        """Whether a file is a cell, or one of the user's that functions came from."""
        return cell_number(self, filename) is not None or filename in self.files

    def name_of(self, filename: str) -> str:
        """A file as a person knows it: cells by their numbers."""
        number = cell_number(self, filename)
        return filename if number is None else f"Cell In[{number}]"

    def place_of(self, error: BaseException) -> Frame | None:
        """The deepest place of a traceback in the notebook's text, else in files of the user."""
        places = [
            (f.f_code.co_filename, line) for f, line in traceback.walk_tb(error.__traceback__)
        ]
        for file, line in reversed(places):
            if number := cell_number(self, file):
                return _frame(f"Cell In[{number}]", file, line)
        for file, line in reversed(places):
            if not (file.startswith(_NOT_THE_USERS) or is_library(file)):
                return _frame(Path(file).name, file, line)
        return None


def _frame(where: str, file: str, line: int) -> Frame:
    text = linecache.getline(file, line).strip()
    return Frame(where, line, text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}…")


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(_NOT_THE_USERS[0])


def _take_ours_away(error: BaseException) -> None:
    """Leave our frames out of what led to an exception, and what was raised in our frames alone."""
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        before = shown_before(error)
        if before is None:
            return
        if before.__traceback__ is not None:
            left = without_frames(before.__traceback__, _is_ours)
            if left is None:
                BaseException.__setattr__(error, "__cause__", None)
                return
            BaseException.__setattr__(before, "__traceback__", left)
        error = before


def shown_before(error: BaseException) -> BaseException | None:
    """The exception that a traceback shows before this one."""
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _has_group(error: BaseException | None) -> bool:
    """Whether a traceback of this exception tells of a group."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, BaseExceptionGroup):
            return True
        seen.add(id(error))
        error = shown_before(error)
    return False


def _called(call: Callable[[], object]) -> object:
    """The value of a call; a coroutine is awaited first, a generator's values are sent home first."""
    value = call()
    if inspect.iscoroutine(value):
        return _run_to_its_end(value)
    if not getattr(call, "streams", False):
        return value
    if inspect.isasyncgen(value):
        value = _in_turn(value)
    return send_all(value) if inspect.isgenerator(value) else value


def _in_turn(values: AsyncGenerator[Any, Any]) -> Generator[Any, Any, None]:
    """An asynchronous generator as a plain one."""
    try:
        step = anext(values)
        while True:
            value = _run_to_its_end(_awaited(step))
            try:
                step = values.asend((yield value))
            except Exception as thrown:  # noqa: BLE001 - whatever is thrown into it
                step = values.athrow(thrown)
    except StopAsyncIteration:
        return
    finally:
        _run_to_its_end(values.aclose())


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


def _run_to_its_end(work: Coroutine[Any, Any, Any]) -> object:
    """Run a cell's coroutine on the rank's loop; an interrupt cancels it, and waits for that."""
    import asyncio

    loop = get_asyncio_loop()
    task = loop.create_task(work)
    try:
        return loop.run_until_complete(task)
    except BaseException:
        # One that is done gives its exception once with its traceback, and not again.
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                loop.run_until_complete(task)
        raise


def make_shell(folder: Path) -> RankShell:
    """The process's one shell, keeping its few files in `folder` instead of the user's home."""
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.ipython_dir = str(folder)
    profile = ProfileDir.create_profile_dir(str(folder / "profile"))
    shell = RankShell.instance(config=config, profile_dir=profile)
    shell.register_magics(PipOnce)
    return shell
