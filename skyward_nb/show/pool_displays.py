"""What the ranks of a pool show: in the display of its own run, however late, and in the logbook."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

from msgspec.structs import replace

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
from skyward_nb.show.run_progress import ProgressFile
from skyward_nb.view.run_view import RunView
from skyward_nb.words.errors import PoolError, spell_size

_KEPT = 8
_IDLE_PERIOD = 0.25
_LOOK_AFTER = 0.5
_LOST = (
    "{} of what ranks showed while nobody read is lost, also for %sky logs: the pool keeps 1 GB, "
    "or less where its disk is full"
)
RunOutput = Output | Display | Clear | Progress | Metric | Metrics | RankPhase
_OF_A_RUN = (Output, Display, Clear, Progress, Metric, Metrics, RankPhase)


class PoolDisplays:
    """The displays of one pool's runs, the last few of which can still be drawn anew; for any thread.

    It `listens` between cells, where the thread has a loop of its own that goes on then. While a
    thread holds `lock`, no other shows anything of the pool.
    """

    def __init__(self, pool: Pool, *, listens: bool = True) -> None:
        self.pool: Pool = pool
        self.lock: threading.RLock = threading.RLock()
        self._displays: deque[RunDisplay] = deque(maxlen=_KEPT)
        self._book = Logbook(pool.pool_id)
        self._renewal: asyncio.TimerHandle | None = None
        self._look_later: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._heard: list[int] = []
        self._lost = 0
        self.untold: str = ""
        """Why the pool was lost, in words, if that was seen between cells."""
        self.mark: str = ""
        """What the pictures say beside the pool's name, of the kernel that shows them."""
        pool.closing.before_close.append(self._book.close)
        self._leave: Callable[[], None] = lambda: None
        pool.closing.before_close.append(self.rest)
        if listens:
            self.listen()

    # ── a run ───────────────────────────────────────────────────────────────────────────

    def begin(
        self,
        display: RunDisplay,
        ranks: tuple[int, ...],
        title: str,
        number: int,
        *,
        among: tuple[int, ...] = (),
        is_told_again: bool = False,
    ) -> None:
        """Have a display show a run that begins, which may be one of several `among` these ranks.

        The log of a run that is told again is begun anew.
        """
        pool = self.pool
        with self.lock:
            if among and display.first_run:
                display.again(ranks)
                return
            spec = pool.spec
            simulated = spec.devices_words if spec.simulate else ""
            about = (spec.name, spec.provider, simulated, *spec.framework, self.mark)
            display.running(
                among or ranks,
                title,
                " · ".join(filter(None, about)),
                run=f"{pool.pool_id}/{number}",
                number=number,
                nodes={info.rank: info.node for info in pool.infos},
                bill=pool.bill,
            )
            if is_told_again:
                self._book.begin_anew(number)
            display.keep = self._book.write
            display.progress_file = ProgressFile(pool.entry, number, was_shown=is_told_again)
            self._displays.append(display)

    def numbered(self, display: RunDisplay, number: int, *, is_first: bool) -> None:
        """A run of a display has begun: it has another number than the next one had before, if others began meanwhile."""
        with self.lock:
            display.last_runs.append(number)
            if is_first and display.first_run != number:
                display.numbered(f"{self.pool.pool_id}/{number}", number)
                if display.progress_file is not None:
                    display.progress_file.remove()
                display.progress_file = ProgressFile(self.pool.entry, number)

    def give(self, now: RunDisplay, event: Event | None, number: int | None = None) -> None:
        """Give an event to `now`, the display of the run of this number, which goes on, or to that of another run, which is over."""
        with self.lock:
            if event is None:
                self._book.flush_late()
            elif isinstance(event, LeftOut):
                self._lost += event.size
            elif isinstance(event, _OF_A_RUN):
                if isinstance(event, Display) and event.update:
                    self._update(event, now)
                is_own = event.run in (0, number) or event.run in now.last_runs
                if not is_own and self._display_of(event.run, now) is not now:
                    self._late(event)
                    return
            now.watch(event)

    def give_aside(self, display: RunDisplay, event: Event | None) -> None:
        """Give an event to a display without a run, unless it belongs to a run."""
        with self.lock:
            if isinstance(event, _OF_A_RUN) and event.run:
                self._late(event)
            else:
                display.watch(event)

    def end(self, display: RunDisplay, run: int) -> None:
        """A run is over: have on disk what it printed; its display notes what could not be written."""
        with self.lock:
            self._book.end(run, tuple(self.pool.context.state.runs))
            words = [_LOST.format(spell_size(self._lost))] if self._lost else []
            words += [self._book.trouble] if self._book.trouble else []
            self._lost, self._book.trouble = 0, ""
            if words:
                display.note("; ".join(words))
            if self._loop is not None and not (self.pool.closed or self._loop.is_closed()):
                if self._heard != self.pool.lines.sockets():
                    # A line was cut, and opened anew; or nobody listened while the run went on.
                    self._loop.call_soon_threadsafe(self._listen_anew)
                else:
                    self._look_soon()

    def _listen_anew(self) -> None:
        self.listen()
        self._look_soon()

    def _look_soon(self) -> None:
        if self._loop is not None and self._look_later is None:
            self._look_later = self._loop.call_later(_LOOK_AFTER, self._look_after)

    def _look_after(self) -> None:
        self._look_later = None
        if self._loop is not None:
            self._look_when_idle(self._loop)
        self.pool.lines.flush()

    def renew(self) -> None:
        """Draw those to which something came late."""
        with self.lock:
            for display in self._displays:
                display.renew()

    def last(self) -> RunView | None:
        """The last run of a cell, as far as it is known."""
        cells = [each for each in tuple(self._displays) if not each.is_aside]
        return cells[-1].view if cells else None

    def view_of(self, number: int) -> RunView | None:
        """The run of this number, or the last one, if it is still known here."""
        found = [
            each
            for each in tuple(self._displays)
            if number == each.first_run or not (number or each.is_aside)
        ]
        if not found:
            return None
        view = found[-1].view
        return view if view.ended is not None else replace(view, now=time.monotonic())

    def flush(self) -> None:
        """Let the logs be read."""
        self._book.flush()

    # ── between runs ────────────────────────────────────────────────────────────────────

    def look(self, patience: float = 0.0) -> Mapping[int, RankLost]:
        """Handle events between cells, which earlier runs show; returns the lost ranks.

        Waits up to `patience` seconds for lines that are cut. Raises `PoolError` when the pool is gone. The listener may wait to show something, so the lock
        is held for each event alone.
        """
        try:
            return self.pool.look(self._give_late, patience)
        except PoolError as error:
            self.untold = self.pool.context.gone or error.message
            raise

    def _give_late(self, event: Event | None) -> None:
        with self.lock:
            if isinstance(event, _OF_A_RUN):
                self._late(event)

    def _late(self, event: RunOutput) -> None:
        """Give what came after its run's end to the display of that run, if it is still known."""
        found = self._display_of(event.run)
        if found is not None:
            found.late(event)
        elif isinstance(event, Output | Display):
            self._book.write(event)

    def _display_of(self, run: int, now: RunDisplay | None = None) -> RunDisplay | None:
        """The display of a run, if it is still known here, or `now`."""
        shown = [*([] if now is None else [now]), *reversed(self._displays)]
        found = [each for each in shown if each.shows(run)]
        # Not the one that was shown last: another may have begun first.
        return max(found, key=lambda each: (run in each.last_runs, each.first_run), default=None)

    def rest(self) -> None:
        """Stop listening between cells: another thread reads, or none."""
        self._pause()
        self._loop = None

    def _pause(self) -> None:
        """Stop listening until a run ends."""
        self._leave()
        self._leave = lambda: None
        self._heard = []

    def listen(self) -> None:
        """Take what ranks show between cells, on the kernel's own loop, so that none has to wait."""
        if self.pool.closed:
            return
        if threading.current_thread() is not threading.main_thread():
            return  # a subshell's loop would read while a cell runs: the next cell takes it
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # plain IPython: the next cell takes it
        self.rest()
        self._loop = loop
        self._heard = descriptors = self.pool.lines.sockets()
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
            else:
                self._heard = []  # another socket may get its number

        self._leave = leave
        self.pool.lines.before_cut = leave

    def _look_when_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.pool.context.state.runs:
            # Whoever has a run listens, or nobody does, and its values wait in the socket.
            with self.lock:
                self._pause()
            return
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
