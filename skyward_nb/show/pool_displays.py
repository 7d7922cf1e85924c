"""What the ranks of a pool show: to the picture of its own run, however late, and to the logbook."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Mapping

from skyward_nb.logs.logbook import Logbook
from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.events import (
    Clear,
    Display,
    Event,
    LeftOut,
    Metric,
    Metrics,
    Output,
    Progress,
    RankLost,
    RankPhase,
)
from skyward_nb.show.display import RunDisplay
from skyward_nb.view.run_view import RunView
from skyward_nb.words.errors import PoolError, spell_size

_NO_LOCK = contextlib.nullcontext()
_KEPT = 8
_IDLE_PERIOD = 0.25
_LOOK_AFTER = 0.5
_LOST = (
    "{} of what ranks showed while nobody read is lost, also for %sky logs: the pool keeps 1 GB, "
    "or less where its disk is full"
)
_OF_A_RUN = (Output, Display, Clear, Progress, Metric, Metrics, RankPhase)


class PoolDisplays:
    """The displays of one pool's runs, the last few of which can still be drawn anew.

    It `listens` between cells, where the thread has a loop of its own that goes on then.
    """

    def __init__(self, pool: Pool, *, listens: bool = True) -> None:
        self._pool = pool
        self._displays: deque[RunDisplay] = deque(maxlen=_KEPT)
        self._book = Logbook(pool.pool_id)
        self._renewal: asyncio.TimerHandle | None = None
        self._look_later: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._heard: list[int] = []
        self._lost = 0
        self.untold: str = ""
        """Why the pool is no more, in words, if that was seen between cells."""
        pool.closing.before_close.append(self._book.close)
        self._leave: Callable[[], None] = lambda: None
        pool.closing.before_close.append(self.rest)
        if listens:
            self.listen()

    # ── a run ───────────────────────────────────────────────────────────────────────────

    def begin(self, display: RunDisplay, *, replayed: int = 0) -> None:
        """A run begins, and has this display; of one that is told again the log is begun anew."""
        if replayed:
            self._book.begin_anew(replayed)
        display.keep = self._book.write
        self._displays.append(display)

    def watch(self, event: Event | None) -> None:
        """Give an event to the display of its run; of others, to the one of the run going on."""
        self.give(self._displays[-1], event)

    def give(self, now: RunDisplay, event: Event | None) -> None:
        """Give an event to `now`, the display of a run that goes on, or to that of an earlier run."""
        if isinstance(event, LeftOut):
            self._lost += event.size
        if isinstance(event, Display) and event.update:
            self._update(event, now)
        if isinstance(event, _OF_A_RUN) and 0 < event.run < now.first_run:
            self._late(event)
        else:
            now.watch(event)

    def beside(self, display: RunDisplay, event: Event | None) -> None:
        """Give an event to a display that is no run's, unless it is one of a run."""
        if isinstance(event, _OF_A_RUN) and event.run:
            self._late(event)
        else:
            display.watch(event)

    def end(self, run: int | None = None) -> str:
        """A run is over, or the last: what it printed is on disk; what went wrong with that, in words."""
        self._book.end(self._pool.next_run - 1 if run is None else run)
        trouble, self._book.trouble = self._book.trouble, ""
        if self._lost:
            trouble = f"{_LOST.format(spell_size(self._lost))}{'; ' if trouble else ''}{trouble}"
            self._lost = 0
        if self._loop is not None and not self._pool.closed:
            if self._heard != self._pool.lines.sockets():
                self.listen()  # a line was cut, and opened anew
            if self._look_later is None:
                self._look_later = self._loop.call_later(_LOOK_AFTER, self._look_after)
        return trouble

    def _look_after(self) -> None:
        self._look_later = None
        if self._loop is not None:
            self._look_when_idle(self._loop)
        self._pool.lines.flush()

    def renew(self) -> None:
        """Draw those to which something came late."""
        for display in self._displays:
            display.renew()

    def last(self) -> RunView | None:
        """The last run of a cell, as far as it is known."""
        cells = [each for each in self._displays if not each.is_aside]
        return cells[-1].view if cells else None

    def flush(self) -> None:
        """Let the logs be read."""
        self._book.flush()

    # ── between runs ────────────────────────────────────────────────────────────────────

    def look(
        self, lock: contextlib.AbstractContextManager[object] = _NO_LOCK
    ) -> Mapping[int, RankLost]:
        """Take notice of what came between cells, which earlier runs show; the ranks that are gone.

        The lock is held for each event that is shown. Raises `PoolError` when the pool is gone.
        """

        def late(event: Event | None) -> None:
            with lock:
                self._late(event)

        try:
            return self._pool.look(late)
        except PoolError as error:
            self.untold = self._pool.context.gone or error.message
            raise

    def _late(self, event: Event | None) -> None:
        """Give what came after its run's end to the display of that run, if it is still known."""
        if not isinstance(event, _OF_A_RUN):
            return
        for display in reversed(self._displays):
            if 0 < display.first_run <= event.run:
                display.late(event)
                return
        if isinstance(event, Output | Display):
            self._book.write(event)

    def rest(self) -> None:
        """Listen no more between cells: somebody else reads, or nobody."""
        self._leave()
        self._leave = lambda: None
        self._loop = None

    def listen(self) -> None:
        """Take what ranks show between cells, on the kernel's own loop, so that none has to wait."""
        if threading.current_thread() is not threading.main_thread():
            return  # a subshell's loop would read while a cell runs: the next cell takes it
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # plain IPython: the next cell takes it
        self.rest()
        self._loop = loop
        self._heard = descriptors = self._pool.lines.sockets()
        for descriptor in descriptors:
            loop.add_reader(descriptor, self._look_when_idle, loop)

        def leave(closing: int | None = None) -> None:
            for descriptor in descriptors if closing is None else [closing]:
                loop.remove_reader(descriptor)
            for timer in (self._renewal, self._look_later) if closing is None else ():
                if timer is not None:
                    timer.cancel()
            if closing is None:
                self._renewal = self._look_later = None

        self._leave = leave
        self._pool.lines.before_cut = leave

    def _look_when_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(PoolError):  # the next cell tells it
            self.look()
            if self._renewal is None:
                self._renewal = loop.call_later(_IDLE_PERIOD, self._renew_when_idle)

    def _renew_when_idle(self) -> None:
        self._renewal = None
        self.renew()

    def _update(self, event: Display, now: RunDisplay) -> None:
        """Have the earlier runs that displayed something renew it."""
        for display in self._displays:
            if display is not now and display.first_run != event.run:
                display.update(event)
