"""A run in the background: a thread conducts it, and the main thread shows and ends it.

What ranks say waits in a queue for the main thread, which takes it between cells, or whenever the
run's handle is asked: nothing is drawn or bound from another thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable

from skyward_nb.pool.inbox import Inbox
from skyward_nb.pool.interrupt_handlers import calm
from skyward_nb.pool.outcome import RunOutcome
from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.events import Event
from skyward_nb.reports.execution import Execution
from skyward_nb.words.errors import PoolError, SkyError

_PERIOD = 0.1
_SLICE = 0.05
"""Seconds that may be taken to show what came: the notebook's cells go first."""
_JOIN = 5.0
_SLOWLY = 0.5


class Background:
    """Waits for a run in a thread, from `start` on; everything else here is for the main thread.

    `conclude` takes the outcome of the run, and returns its value, or raises. `closed` gets in words why
    there is nothing to conclude.
    """

    def __init__(
        self,
        execution: Execution,
        conclude: Callable[[RunOutcome], object],
        closed: Callable[[str], None],
    ) -> None:
        self.name: str = execution.display.view.run
        self.pool: Pool = execution.pool
        self.value: object = None
        self.error: BaseException | None = None
        self.is_over: bool = False
        self.has_ended: Callable[[], None] = lambda: None
        self._execution = execution
        self._conclude = conclude
        self._closed = closed
        self._ended_between = False
        self._taking = threading.Lock()
        self._events = Inbox()
        self._outcome: RunOutcome | None = None
        self._trouble: BaseException | None = None
        self._ended, self._over = threading.Event(), threading.Event()
        self._loop = _running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._run, name="skyward-run", daemon=True)

    def start(self) -> None:
        """Begin to wait for the run, and to show it."""
        self._thread.start()
        self._call_later()

    def _run(self) -> None:
        try:
            self._outcome = self._execution.wait(self._hear)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the main thread raises it
            self._trouble = error
        finally:
            self._ended.set()
            if self._loop is not None:
                with contextlib.suppress(RuntimeError):  # the kernel is going
                    self._loop.call_soon_threadsafe(self._look_between)

    def _hear(self, event: Event | None) -> None:
        if event is not None and self._events.put(event):
            time.sleep(_SLOWLY)

    def _call_later(self) -> None:
        if self._loop is not None and not self.is_over:
            period = _SLICE if self._events else _PERIOD
            self._timer = self._loop.call_later(period, self._look_again)

    def _look_again(self) -> None:
        self._look_between()
        self._call_later()

    def _look_between(self) -> None:
        if not self.is_over:
            self._take(_SLICE)
            self._ended_between = self.is_over

    # ── the main thread's ───────────────────────────────────────────────────────────────

    def look(self) -> None:
        """Show the events so far; when the run has ended, bind its value."""
        if self.is_over:
            if self._ended_between:
                self._ended_between = False
                # Front ends that run notebooks by themselves miss what is shown between cells.
                self._execution.display.draw_again()
                self.has_ended()
            return
        self._take(None if self._ended.is_set() else _SLICE)

    def _take(self, seconds: float | None) -> None:
        """Show what has come, for so long at most; when that is all there will be, end it."""
        if not self._taking.acquire(blocking=False):
            return  # a cell in a subshell asks while another thread is at it
        try:
            ended = self._ended.is_set()
            until = None if seconds is None else time.monotonic() + seconds
            while self._events and (until is None or time.monotonic() < until):
                self._execution.watch(self._events.take())
            self._execution.watch(None)
            if ended and not self._events and not self.is_over:
                self._end()
        finally:
            self._taking.release()

    def wait(self, seconds: float | None) -> bool:
        """Show what comes until the run has ended, for so long at most; whether it has."""
        until = None if seconds is None else time.monotonic() + seconds
        self.look()
        while not self.is_over and (until is None or time.monotonic() < until):
            if not self._events:
                # In a subshell, another thread may bring its value.
                (self._over if self._ended.is_set() else self._ended).wait(_PERIOD)
            self.look()
        return self.is_over

    def cancel(self) -> None:
        """Interrupt the run."""
        if not self._ended.is_set():
            self.pool.interrupt()

    def abandon(self, why: str, *, is_shown: bool = False) -> None:
        """Let the thread end, as the pool is closed or left; the display shows `why` if it is drawn."""
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._thread.ident is not None:  # there may have been room for no other thread
            self._thread.join(_JOIN)
        self.error = PoolError(self.pool.spec.name, why)
        if is_shown:
            while self._events:
                self._execution.watch(self._events.take())
            self._closed(why)
            self.has_ended()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        try:
            if self._trouble is not None:
                self._closed(str(self._trouble).partition("\n")[0] or "Interrupted")
                raise self._trouble
            assert self._outcome is not None
            with calm():
                self.value = self._conclude(self._outcome)
        except (SkyError, KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - the handle raises it
            self.error = error
        finally:
            self.is_over = True  # now that its value is there: another thread may ask
            self._over.set()
        self.has_ended()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """The kernel's own loop, if the main thread has one."""
    if threading.current_thread() is threading.main_thread():
        with contextlib.suppress(RuntimeError):
            return asyncio.get_running_loop()
    return None
