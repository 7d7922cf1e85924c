"""The loop that reads events of a pool, feeds its `PoolState`, and carries out its actions.

It has no thread of its own: one of the threads that wait for runs listens for all of them (`StateLock`).
Events for other threads wait in the inboxes of their runs.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Collection, Generator, Iterable
from typing import NoReturn, Protocol, TypeVar

from skyward_nb.pool.closing import Closing
from skyward_nb.pool.context import PoolContext
from skyward_nb.pool.interrupt_handlers import PutOff
from skyward_nb.pool.lines import Watch
from skyward_nb.pool.outcome import ActiveRun, RunLeft, RunOutcome
from skyward_nb.pool.state import STILL_MEANT, Action, Deliver, Ended, Incoming, Send, SigInt
from skyward_nb.protocol.commands import Inspect, Sample
from skyward_nb.protocol.events import CommunicationCut, Event, RankLost, ValueWanted
from skyward_nb.words.errors import PoolBusy

T = TypeVar("T")
_FOLLOWS = 0.1
"""Seconds after which a thread that does not listen looks into its inbox."""
_CUT_LIMIT = 10.0
_SLOWLY = 0.25
"""Seconds to the next look where much output waits for another thread."""
_LOOK = 0.25
"""Seconds of one look at lines that are cut."""

RunWatch = Callable[[ActiveRun, Event | None], None]
"""Gets the events of a run; None when a tick of time has passed."""


class StoreReader(Protocol):
    """Fetches values that ranks have given, one after another."""

    @property
    def in_store(self) -> Collection[str]:
        """Digests of those that are yet to be fetched."""
        ...


class Driver:
    """Reads events in a thread that waits for them; any thread may send."""

    def __init__(self, context: PoolContext, closing: Closing) -> None:
        self._context = context
        self._state = context.state
        self._lock = context.lock
        self._lines = context.lines
        self._closing = closing
        self._runs: dict[int, ActiveRun] = {}
        self._outcomes: list[weakref.ref[RunOutcome]] = []
        """Without callbacks as weak collections have them: an interrupt that comes in one is lost."""
        self._readers: list[weakref.ref[StoreReader]] = []
        self._is_flooded = False
        """Whether output came of which much waits for another thread."""
        self.is_left_by_interrupt: Callable[[], bool] = lambda: False

    def add(self, run: ActiveRun) -> None:
        """Add a run that was begun."""
        self._runs[run.number] = run
        self._state.runs[run.number] = run.state
        if len(self._state.runs) == 1:
            self._context.run_clock.begin()
        else:
            self._lines.board.nudge()

    def remove(self, run: ActiveRun, outcome: RunOutcome | None) -> None:
        """Remove a run that is finished; what ranks have returned in it may be yet to be fetched."""
        with self._lock:
            self._outcomes = _those_there(self._outcomes)
            if outcome is not None:
                self._outcomes.append(weakref.ref(outcome))
            self._state.runs.pop(run.number, None)
            self._runs.pop(run.number, None)
            if not run.state.is_call:
                self.forget_interrupts()  # too late for a cell; of calls, the user's code gets them
            elif self._state.leaves_interrupt(run.state):
                self.owe_interrupt()
            self._lock.notify()

    def interrupt(self, number: int | None = None) -> None:
        """Interrupt the run of a number, or all that go on; from any thread."""
        with self._lock:
            self._state.interrupt(number)
        self._lines.board.nudge()

    @property
    def owes_interrupt(self) -> bool:
        """Whether this is the main thread, and an interrupt came as it waited here of which no rank has heard, nor will."""
        return self._lines.board.owes_interrupt and _is_main()

    def owe_interrupt(self) -> None:
        """Note that one came."""
        self._lines.board.owes_interrupt = True

    def forget_interrupts(self) -> None:
        """Have nobody take what came so far and was not taken, if this is the main thread."""
        if self.owes_interrupt:
            with self._lock:
                self._lines.forget_interrupts()
                self._state.is_interrupt_untaken = False

    def interrupts_told(self) -> None:
        """Note that the user's code gets an exception for all that came so far, also for what runs have taken that go on."""
        self.forget_interrupts()
        if _is_main():
            with self._lock:
                for state in self._state.runs.values():
                    state.took_interrupt = False

    def inspect(self, ranks: tuple[int, ...]) -> None:
        """Ask ranks for their stacks, which come as events of their run; from any thread."""
        with self._lock:
            self._lines.send(Inspect(ranks))

    @property
    def in_store(self) -> frozenset[str]:
        """Digests of the values in the store that present runs use."""
        return frozenset[str]().union(*(run.in_store for run in self._runs.values()))

    def read_by(self, reader: StoreReader) -> None:
        """Keep in the store what it has yet to fetch, also when its run is over."""
        with self._lock:
            self._readers = [*_those_there(self._readers), weakref.ref(reader)]

    @property
    def untaken(self) -> frozenset[str]:
        """Digests of what ranks gave in runs that are over, and who waited for these may yet fetch."""
        outcomes = [outcome for ref in self._outcomes if (outcome := ref()) is not None]
        readers = [reader for ref in self._readers if (reader := ref()) is not None]
        returned = (each.results_in_store.values() for each in outcomes)
        yielded = (each.in_store for each in readers)
        return frozenset[str]().union(*itertools.chain(*returned), *yielded)

    # ── turns ───────────────────────────────────────────────────────────────────────────

    def check_free(self) -> None:
        """Raise `PoolBusy` while a run goes on."""
        if self._state.runs:
            self.busy()

    def busy(self) -> NoReturn:
        """Raise `PoolBusy`."""
        name = self._context.spec.name
        what = "another cell" if self.runs_a_cell else "a function"
        raise PoolBusy(
            name,
            f"pool {name!r} is running {what}; wait, or use another pool: pool=other, "
            'in Python sky.get_pool("other")',
        )

    @property
    def runs_a_cell(self) -> bool:
        """Whether something runs beside which nothing else can."""
        return any(not run.is_call for run in tuple(self._state.runs.values()))

    @contextlib.contextmanager
    def turn(self) -> Generator[None]:
        """While inside, no run goes on, and no other thread listens."""
        self.check_free()
        with self._lock.turn():
            self.check_free()
            yield

    # ── listening for runs ──────────────────────────────────────────────────────────────

    def conduct(
        self,
        runs: Collection[ActiveRun],
        watch: RunWatch,
        until: Callable[[], bool] = lambda: False,
    ) -> None:
        """Listen, in turn with other threads, until one of these runs is over, or `until` says so.

        `watch` gets their events, in this thread.
        """
        if _is_main():
            # For good: an interrupt that the main thread has taken may be read by another one that waits for the same.
            with self._lock:
                states = [run.state for run in runs]
                was_interrupted = self._state.to_front(states, is_owed=self.owes_interrupt)
            if was_interrupted:
                self._lines.board.owes_interrupt = False
                self._lines.board.nudge()
        while not (until() or _is_one_over(runs)):
            self._context.check_open()
            if self._lock.take_turn(_FOLLOWS):
                try:
                    self._listen(runs, watch, until)
                finally:
                    self._lock.pass_on()
                # What a user's generator takes its time for is waited for while others listen.
                self._take_in(runs, watch, ticks=False)
            else:
                self._take_in(runs, watch)
        with self._lock:
            """The events that ended it, which another thread heard, are in its inbox by now."""
        self._take_in(runs, watch, ticks=False)

    def _listen(
        self, runs: Collection[ActiveRun], watch: RunWatch, until: Callable[[], bool]
    ) -> None:
        """Listen for all runs until one of these is over, or asks for a value."""
        self._lines.begin_listening()
        while not (self._state.has_ended or until() or _is_one_over(runs)):
            with self._lock:
                due = self._context.run_clock.real(self._state.next_due())
            self._hear(self._lines.step(self._hear_of_line, due))
            if any(run.inbox.asks for run in runs):
                return
            self._take_in(runs, watch)
            if self._is_flooded and self._lines.heard_until() is not None:
                self._is_flooded = False
                time.sleep(_SLOWLY)  # all that was read was given out

    def _hear_of_line(self, event: Event | None) -> None:
        """Handle an event of the lines to machines."""
        if event is not None:
            self._hear(event)

    def _hear(self, event: Incoming | None) -> bool:
        """Handle an event, or the passing of time; whether a run got the event."""
        clock = self._context.run_clock
        now, until = clock.now(), self._lines.heard_until()
        if self._state.runs and clock.is_sample_due():
            self._lines.send(Sample())
        with self._lock:
            if self._state.is_interrupted_first(event):
                self._leave_if_asked()
            actions = self._state.handle(event, now, None if until is None else clock.at(until))
            if isinstance(event, SigInt) and not self._state.is_interrupt_untaken:
                self._lines.board.owes_interrupt = False  # those who took it tell at their end
            self.carry_out(actions)
            kinds = set(map(type, actions))
            if len(self._state.runs) > 1 or Ended in kinds:
                self._lock.notify()
        return Deliver in kinds

    def carry_out(self, actions: Iterable[Action]) -> None:
        """Carry out actions of the state."""
        for action in actions:
            match action:
                case Send(command):
                    self._lines.send(command)
                case Deliver(number, event):
                    self._is_flooded |= self._runs[number].inbox.put(event)
                case Ended():
                    """The thread that waits for it sees that."""

    def _take_in(self, runs: Iterable[ActiveRun], watch: RunWatch, *, ticks: bool = True) -> None:
        """Give the events of these runs to `watch`, or a tick if there are none."""
        stopped = self._context.run_clock.stopped
        for run in runs:
            some = False
            while run.inbox:
                some = True
                event = run.inbox.take()
                if isinstance(event, ValueWanted):
                    self._ask(run, watch, event)
                else:
                    stopped(functools.partial(watch, run), event)
            if ticks and not some:
                stopped(functools.partial(watch, run), None)

    def _ask(self, run: ActiveRun, watch: RunWatch, event: ValueWanted) -> None:
        """Have a user's generator, or a person, asked: other runs' time goes on meanwhile."""
        clock = self._context.run_clock
        with self._lock:
            run.state.asks(clock.now())
        try:
            watch(run, event)
        finally:
            with self._lock:
                run.state.is_answered(clock.now())

    def _leave_if_asked(self) -> None:
        """Leave the pool if the kernel is being restarted: that interrupt is not meant for the run."""
        if self.is_left_by_interrupt():
            self._closing.leave()
            raise RunLeft

    # ── listening between runs ──────────────────────────────────────────────────────────

    def look(self, watch: Watch, patience: float = 0.0) -> dict[int, RankLost]:
        """Handle the events since the last cell; the ranks that are lost.

        Waits up to `patience` seconds until lines that are cut are open again. Raises `PoolError` if the pool is lost.
        """
        self._context.check_open()
        if not self._state.runs:
            self._lines.begin_listening()  # nobody says anything between cells
            self.look_shortly(watch, 0)
            until = time.monotonic() + patience
            while self._lines.is_cut and (left := until - time.monotonic()) > 0:
                self.look_shortly(watch, min(left, _LOOK))
        return self._state.losses

    def look_shortly(self, watch: Watch, seconds: float) -> bool:
        """Handle events for up to `seconds`, unless another thread listens; whether one was an interrupt."""
        with PutOff():
            if not self._lock.take_turn(seconds):
                return False
            try:
                return self._look(watch, seconds)
            finally:
                self._lock.pass_on()

    def _look(self, watch: Watch, seconds: float) -> bool:
        """Handle all events so far, or the first one within `seconds`; whether there was an interrupt."""
        was_interrupted = False
        event = self._lines.next(seconds)
        while event is not None:
            was_interrupted |= isinstance(event, SigInt)
            # Another thread may have begun a run just now.
            if not self._hear(event) and not isinstance(event, SigInt):
                watch(event)
            event = self._lines.next(0)
        self._lines.keep_up(watch)
        if self._state.runs:
            self._hear(None)
        return was_interrupted

    def know_who_is_there(self, watch: Watch) -> None:
        """If a line is cut, wait until it is open again, or its machine is known to have ended."""
        if not self._lines.is_cut:
            return
        with self.turn(), self._lines.interrupts():
            for event in self._lines.pump(watch, None):
                if isinstance(event, RankLost):
                    self._hear(event)
                if not self._lines.is_cut:
                    break
            self._look(watch, 0)

    def await_cuts(self, watch: Watch) -> None:
        """Wait, at most 10 s, for the answers of ranks that are to cut their communication.

        A communicator of NCCL takes half a second to abort, and ranks may do so one after another.
        """
        soon, until = time.monotonic() + STILL_MEANT, time.monotonic() + _CUT_LIMIT
        if self._state.awaits_cuts:
            for event in self._lines.pump(watch, until, interrupts=True):
                if isinstance(event, SigInt) and time.monotonic() > soon:
                    break  # all begin anew
                if isinstance(event, CommunicationCut):
                    self.carry_out(self._state.handle(event, self._context.run_clock.now()))
                if not self._state.awaits_cuts or isinstance(event, RankLost):
                    break


def _those_there(refs: list[weakref.ref[T]]) -> list[weakref.ref[T]]:
    return [each for each in refs if each() is not None]


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _is_one_over(runs: Iterable[ActiveRun]) -> bool:
    """Whether one of these runs has ended on all ranks; asked at each event, so without a generator."""
    for run in runs:  # noqa: SIM110
        if not run.state.running:
            return True
    return False
