"""The one way to run something on a pool: shown while it goes on, its log kept, its end concluded.

Cells, calls of functions, scripts, and runs in the background are all an `Execution`. The caller makes
the `RunRequest` before, and shapes the value after.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Generator
from typing import Any

import msgspec
from IPython.core.getipython import get_ipython

from skyward_nb.hangs.hang import StalledRun, is_a_hang, sentence
from skyward_nb.hangs.hang_watch import HangWatch
from skyward_nb.hangs.rank_locations import whereabouts
from skyward_nb.names.plan import Plan
from skyward_nb.pool.lines import Watch
from skyward_nb.pool.outcome import ActiveRun, RunEvent, RunOutcome, RunRequest, run_whole
from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.events import (
    Clear,
    DebugMessage,
    Display,
    Event,
    Metric,
    Metrics,
    Output,
    Progress,
    RankDone,
    RankLost,
    RankPhase,
    RunBegan,
    Stack,
    ValueWanted,
    Yielded,
)
from skyward_nb.reports import present_debugger
from skyward_nb.reports.keyboard import answer
from skyward_nb.reports.run_notes import stalled
from skyward_nb.reports.source_lines import sources
from skyward_nb.show.display import RunDisplay
from skyward_nb.show.front_ends import FrontEnd, present_front_end
from skyward_nb.show.pool_displays import PoolDisplays
from skyward_nb.view.run_view import RankView

_SIGNS_OF_PROGRESS = (
    Clear, Display, Metric, Metrics, Output, Progress, RankPhase, ValueWanted, Yielded,
)  # fmt: skip


class Execution:
    """One run of a pool under a display: `begin` it, or `follow` one that goes on, then `finish` it.

    It may be one of several runs `among` these ranks that share the display.
    """

    def __init__(
        self,
        displays: PoolDisplays,
        display: RunDisplay,
        title: str,
        *,
        among: tuple[int, ...] = (),
    ) -> None:
        self.display: RunDisplay = display
        self.handlers: dict[type[Event], Callable[[Any], None]] = {}
        """Take events of these types, which are not shown then."""
        self._displays = displays
        self._title = title
        self._among = among
        self._run: ActiveRun | None = None
        self._hang = HangWatch(time.monotonic())
        self._stand: set[int] = set()
        """Ranks that stand at a breakpoint of a front end's debugger."""

    @property
    def pool(self) -> Pool:
        """The pool it runs on."""
        return self._displays.pool

    @property
    def run(self) -> ActiveRun:
        """The run, once it has begun."""
        assert self._run is not None, "it has not begun"
        return self._run

    def watch(self, event: RunEvent | None) -> None:
        """Hand an event to its handler, else show it; None when a tick of time has passed."""
        if isinstance(event, Plan):
            # It comes while the pool's state is held: no lock of displays may be waited for then.
            self.display.show_plan(event)
            return
        self._look_for_hangs(event)
        self._follow_debugger(event)
        if isinstance(event, DebugMessage):
            return
        if isinstance(event, ValueWanted) and event.prompt:
            self._ask(event)
            return
        if event is not None and type(event) in self.handlers:
            self.handlers[type(event)](event)
        else:
            self._displays.give(self.display, event, self._run and self._run.number)

    def _look_for_hangs(self, event: Event | None) -> None:
        """Tell for whom ranks wait where nothing has gone on for a while."""
        now = time.monotonic()
        if self._run is not None and self._run.state.is_stopping:
            return  # ranks leave what they waited in
        if isinstance(event, RankDone):
            if not (event.interrupted or event.waited_in):
                self._on_progress(now)
        elif isinstance(event, _SIGNS_OF_PROGRESS):
            self._on_progress(now)
        elif isinstance(event, Stack) and (texts := self._hang.found(event)) is not None:
            source = sources(get_ipython())
            running = {rank: whereabouts(text, source) for rank, text in texts.items()}
            halt = stalled(self.run.outcome(), running, self.pool.ranks, is_past=False)
            self._show_hang(halt if is_a_hang(halt) else None)
        elif event is None and self._run is not None:
            ranks = self._hang.ranks_to_ask(self.run.state.running, now)
            if ranks:
                self.pool.driver.inspect(ranks)

    def _on_progress(self, now: float) -> None:
        self._hang.progressed(now)
        if self.display.hang:
            self._show_hang(None)

    def _ask(self, wanted: ValueWanted) -> None:
        """Have a person type for a rank at a breakpoint; the run's clock stands still meanwhile."""
        if self._run is not None and self._run.state.is_stopping:
            return  # it is interrupted
        rank = wanted.rank
        with self._displays.lock:
            words = (
                f"rank {rank} is at a breakpoint: n, s, p NAME, w as in pdb, c to go on, q to quit"
            )
            if present_front_end(get_ipython()) is FrontEnd.VSCODE:
                words += "; type in the box at the top of the window"
            ranks = self.display.view.ranks
            stands = {rank: msgspec.structs.replace(ranks.get(rank, RankView()), halted=True)}
            self.display.change(hang=words, ranks={**ranks, **stands})
            self.display.show()
        answer(self.pool, wanted)
        with self._displays.lock:
            self.display.change(hang="")
        self._hang.progressed(time.monotonic())

    def _follow_debugger(self, event: Event | None) -> None:
        """Pass on what ranks' debuggers say; while ranks stand the clock of the pool's runs stands still, and a line says so."""
        bridge = present_debugger.present()
        if isinstance(event, DebugMessage):
            if bridge is None:
                present_debugger.let_go(self.pool, event.run, (event.rank,))
            else:
                bridge.heard(self.pool, event)
        if bridge is None or self._run is None:
            return
        number = self.run.number
        if isinstance(event, RankDone | RankLost):
            bridge.over(self.pool, number, (event.rank,))
        if self.run.state.is_stopping:
            bridge.let_go(self.pool, number)
        there = bridge.standing(self.pool, number)
        self.pool.context.run_clock.hold(bridge.takes_no_time(self.pool))
        if there:
            self._hang.progressed(time.monotonic())
        if there.keys() != self._stand:
            self._stand = set(there)
            self._show_standing()

    def _show_standing(self) -> None:
        with self._displays.lock:
            ranks = self.display.view.ranks
            stand = {
                rank: msgspec.structs.replace(ranks.get(rank, RankView()), halted=True)
                for rank in self._stand
            }
            words = present_debugger.stand(self._stand) if self._stand else ""
            self.display.change(hang=words, ranks={**ranks, **stand})
            self.display.show()

    def _show_hang(self, halt: StalledRun | None) -> None:
        if halt is not None or self.display.hang:
            with self._displays.lock:
                past = dataclasses.replace(halt, is_past=True) if halt else None
                self.display.hang = sentence(past) if past else ""
                self.display.change(hang=sentence(halt) if halt else "")

    def begin(self, request: RunRequest, calm: contextlib.ExitStack | None = None) -> None:
        """Send what the run needs and let it run; `calm` and errors as of `Pool.begin`."""
        bridge = present_debugger.present()
        if bridge is not None and request.is_work:
            request = dataclasses.replace(request, debug=bridge.plan())
        number = self.pool.context.state.last_run + 1
        is_first = not (self._among and self.display.first_run)
        self._displays.begin(self.display, request.ranks, self._title, number, among=self._among)
        try:
            self._run = self.pool.begin(request, self.watch, calm)
            self._displays.numbered(self.display, self.run.number, is_first=is_first)
            if bridge is not None and request.debug is not None:
                bridge.began(self.pool, self.run.number, request.ranks)
            self._hang.progressed(time.monotonic())
        except BaseException:
            self._displays.end(self.display, number)
            raise

    def follow(self, began: RunBegan, calm: contextlib.ExitStack) -> None:
        """Go on with a run that an earlier client began; it is shown from its beginning."""
        self._displays.begin(self.display, began.ranks, self._title, began.run, is_told_again=True)
        self.display.began_before(max(0.0, time.time() - began.card.began))
        self._run = self.pool.runs.follow(began, calm)

    def wait(self, watch: Watch) -> RunOutcome:
        """Wait for its end, however it ends; its events go to `watch`. Raises `PoolError`."""
        return self.pool.finish(self.run, watch)

    def finish(self) -> RunOutcome:
        """Show the run until it ends, however it ends; raises `PoolError`."""
        try:
            return self.wait(self.watch)
        finally:
            self.end_log()

    def end_log(self) -> None:
        """Have on disk what it printed; no debugger looks at it any more."""
        if (bridge := present_debugger.present()) is not None:
            bridge.over(self.pool, self.run.number, self.run.state.ranks)
            self.pool.context.run_clock.hold(bridge.takes_no_time(self.pool))
        self._displays.end(self.display, self.run.number)

    def execute(self, begin: Callable[[contextlib.ExitStack], None]) -> RunOutcome:
        """Begin the run, show it, and wait for its end; returns however it ended.

        Raises `PayloadError` before anything is sent, and `PoolError` when the pool itself is lost.
        """
        return run_whole(begin, lambda _: self.finish())


def execute(
    displays: PoolDisplays, request: RunRequest, display: RunDisplay, title: str
) -> RunOutcome:
    """Run what is asked for under a display; returns however it ended. Errors as of `Execution`."""
    execution = Execution(displays, display, title)
    return execution.execute(functools.partial(execution.begin, request))


@contextlib.contextmanager
def concluding(pool: Pool, outcome: RunOutcome, display: RunDisplay) -> Generator[None]:
    """After this, all of a run has been seen, and what was brought home for it is dropped."""
    try:
        yield
    except KeyboardInterrupt:
        if display.view.ended is None:
            display.end("interrupted", "Interrupted before its values were here")
        raise
    finally:
        if not pool.closed:
            pool.seen()
        pool.clean(outcome)
