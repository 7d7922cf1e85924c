"""Displays of a pool's functions: under the cell in a notebook, else as lines of text.

In a notebook only its main thread draws. What runs in other threads there is drawn by the main
thread when it waits for a future, or by the kernel's own loop between cells.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError

from IPython.core.getipython import get_ipython
from IPython.core.interactiveshell import InteractiveShell

from skyward_nb.functions.told_to_end import exits_if_told
from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.events import Display, Output
from skyward_nb.show.canvas import Canvas
from skyward_nb.show.canvas_choice import canvas_of
from skyward_nb.show.display import RunDisplay
from skyward_nb.show.pool_displays import PoolDisplays
from skyward_nb.view.run_view import RunView
from skyward_nb.words.errors import PoolError

UNREAD = "Stopped: its values are not taken any more"


class LaterCanvas:
    """Draws on another canvas, from the main thread alone, and only the latest view."""

    waits = False

    def __init__(self, canvas: Canvas, wake: Callable[[LaterCanvas], None]) -> None:
        self.period: float = canvas.period
        self._canvas = canvas
        self._wake = wake
        self._waiting: RunView | None = None
        self._lock = threading.Lock()

    def draw(self, view: RunView) -> None:
        """Have a view drawn soon."""
        with self._lock:
            is_first, self._waiting = self._waiting is None, view
        if is_first:
            self._wake(self)

    def output(self, event: Output | Display) -> None:
        """Nothing: the view holds it."""

    def draw_now(self) -> None:
        """Draw what waits; in the main thread."""
        with self._lock:
            view, self._waiting = self._waiting, None
        if view is not None:
            self._canvas.draw(view)


class CallDisplay:
    """Shows the runs of one pool; from any thread."""

    def __init__(self, *, quiet: bool) -> None:
        self._shell: InteractiveShell | None = get_ipython()
        self._quiet = quiet
        self._displays: PoolDisplays | None = None
        self._later: deque[LaterCanvas] = deque()
        """Those that have something to draw."""
        self._behind = 0
        self._counting = threading.Lock()
        self._loop = _kernel_loop(self._shell)
        self._is_in_kernel = getattr(self._shell, "kernel", None) is not None

    @property
    def number(self) -> int:
        """The number of the cell that runs, or 0."""
        return self._shell.execution_count if self._shell is not None else 0

    def open(self, pool: Pool) -> None:
        """The pool is up."""
        self._displays = PoolDisplays(pool, listens=self._loop is not None)

    def share(self, displays: PoolDisplays) -> None:
        """The pool is up, and its runs are shown by others, too."""
        self._displays = displays

    @property
    def displays(self) -> PoolDisplays:
        """The displays of the pool's runs; there are such once it is up."""
        assert self._displays is not None, "the pool is not up"
        return self._displays

    def display(self, title: str) -> RunDisplay:
        """A display for the call that begins now in this thread."""
        canvas = canvas_of(self._shell)
        if self._is_in_kernel and not _is_main():
            canvas = LaterCanvas(canvas, self._draw_soon)
        return RunDisplay(canvas, title, quiet=self._quiet, sparing=True)

    # ── a notebook's other threads ──────────────────────────────────────────────────────

    @contextlib.contextmanager
    def behind(self) -> Generator[None]:
        """While inside, another thread than the kernel's listens to the pool."""
        if self._loop is None or _is_main():
            yield
            return
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        with self._counting:
            self._behind += more
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the kernel is going
                self._loop.call_soon_threadsafe(self._listen_or_rest)

    def _listen_or_rest(self) -> None:
        if self._displays is not None:
            with self._displays.lock:
                self._displays.rest() if self._behind else self._displays.listen()

    def _draw_soon(self, canvas: LaterCanvas) -> None:
        self._later.append(canvas)
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.draw_later)

    def draw_later(self) -> None:
        """Draw what other threads have to show; in the main thread."""
        if not _is_main():
            return
        with self._displays.lock if self._displays else contextlib.nullcontext():
            while self._later:
                self._later.popleft().draw_now()

    def close(self) -> None:
        """Stop showing."""
        self.draw_later()


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _kernel_loop(shell: InteractiveShell | None) -> asyncio.AbstractEventLoop | None:
    """The loop of the kernel's main thread, if this is a kernel."""
    kernel = getattr(shell, "kernel", None)
    found = getattr(getattr(kernel, "io_loop", None), "asyncio_loop", None)
    if found is None and kernel is not None and _is_main():
        with contextlib.suppress(RuntimeError):
            return asyncio.get_running_loop()
    return found


@contextlib.contextmanager
def shown_to_its_end(display: RunDisplay, pool: Pool) -> Generator[None]:
    """Whatever ends a run ends its picture."""
    with exits_if_told(), _ends_its_picture(display, pool):
        yield


@contextlib.contextmanager
def _ends_its_picture(display: RunDisplay, pool: Pool) -> Generator[None]:
    try:
        yield
    except BaseException as error:
        if display.view.ended is None:
            words = str(error).partition("\n")[0] or UNREAD
            stopped = isinstance(error, KeyboardInterrupt | GeneratorExit | CancelledError)
            if isinstance(error, PoolError) and pool.closed and not pool.context.gone:
                stopped, words = True, "Stopped: the pool was closed"
            display.end("interrupted" if stopped else "failed", words)
        raise
