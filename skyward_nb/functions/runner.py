"""How calls go through a pool: packed when they are made, run on ranks that are free, ended as cells are."""

from __future__ import annotations

import contextlib
import itertools
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

from IPython.core.getipython import get_ipython

from skyward_nb.functions.call_display import UNREAD, CallDisplay, shown_to_its_end
from skyward_nb.functions.concurrent_calls import ConcurrentCalls
from skyward_nb.functions.function import Function
from skyward_nb.functions.function_marks import shown
from skyward_nb.functions.notebook_names import namespace_of
from skyward_nb.functions.owed_interrupts import at_drop, owed_at_its_end, raise_if_owed
from skyward_nb.functions.packed_calls import PackedCall
from skyward_nb.functions.rank_claims import RankClaims
from skyward_nb.functions.rank_readiness import RankReadiness
from skyward_nb.functions.rank_slots import SlotDeadlock, SlotsClosed, StopsBy, Wanted, always
from skyward_nb.functions.rank_streams import RankStream, StreamRun
from skyward_nb.functions.used_frameworks import UsedFrameworks
from skyward_nb.options.cell_options import CellOptions
from skyward_nb.plugins.plugin_table import is_installed
from skyward_nb.pool.outcome import ActiveRun, RunOutcome, RunRequest
from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.events import Event, ValueWanted
from skyward_nb.protocol.message_parts import RunCard
from skyward_nb.reports.execution import Execution, concluding, execute
from skyward_nb.reports.results import RankResults
from skyward_nb.reports.run_ending import RunEnding, conclude
from skyward_nb.reports.scripts import Script
from skyward_nb.show.display import RunDisplay, spell_result
from skyward_nb.words.errors import PoolBusy, PoolError
from skyward_nb.words.ranks import parse_ranks, shown_ranks

_ROUND = 0.05
"""Seconds after which a call that another run was in the way of tries again."""


class Runner:
    """Runs calls on the ranks of one pool that is up; from any thread."""

    def __init__(self, pool: Pool, stage: CallDisplay) -> None:
        self.pool = pool
        self._stage = stage
        self.claims: RankClaims = RankClaims(pool)
        self._namespace = namespace_of(get_ipython())
        self.readiness: RankReadiness = RankReadiness(
            pool,
            stage,
            UsedFrameworks(self._namespace),
            self.claims.all_ranks,
        )
        self.speeds: weakref.WeakKeyDictionary[Callable[..., Any], float] = (
            weakref.WeakKeyDictionary()
        )
        """Seconds that an item of an earlier map took, by the function."""

    # ── one call ────────────────────────────────────────────────────────────────────────

    def run(
        self,
        job: PackedCall,
        ranks: Sequence[int],
        *,
        all_of: bool,
        begun: Callable[[ActiveRun], None] = lambda _: None,
        is_wanted: Wanted = always,
    ) -> RankResults[Any]:
        """Run a job on one of these ranks, or on all; returns what it returned, or raises what it raised.

        Raises CancelledError where it is not wanted any more before there is a rank: see `RankSlots.look`.
        """
        with (
            owed_at_its_end(self.pool),
            self.claims.claimed(ranks, all_of=all_of, is_wanted=is_wanted) as claim,
            claim.interrupt.as_before(),
            self._stage.behind(),
        ):
            display = self._stage.display(f"{job.name}()")
            with shown_to_its_end(display, self.pool):
                execution = self._execution(job, claim.ranks, display)

                def begin(calm: contextlib.ExitStack) -> None:
                    self._begin(job, execution, claim.ranks, calm)
                    begun(execution.run)

                return self._conclude(job, execution.execute(begin), display)

    def stream(
        self,
        function: Function[..., Any],
        job: PackedCall,
        ranks: Sequence[int],
        *,
        all_of: bool,
        is_wanted: Wanted = always,
    ) -> list[RankStream]:
        """Begin a generator on one of these ranks, or on all; what each of them yields. Raises as `run`."""
        with owed_at_its_end(self.pool):
            return self._stream(function, job, ranks, all_of=all_of, is_wanted=is_wanted)

    def _stream(
        self,
        function: Function[..., Any],
        job: PackedCall,
        ranks: Sequence[int],
        *,
        all_of: bool,
        is_wanted: Wanted,
    ) -> list[RankStream]:
        run: StreamRun | None = None
        streams: list[RankStream] = []
        try:
            with self.claims.claimed(ranks, all_of=all_of, is_wanted=is_wanted) as claim:
                with claim.interrupt.as_before(), contextlib.ExitStack() as calm:
                    display = self._stage.display(f"{job.name}()")
                    execution = self._execution(job, claim.ranks, display)
                    self._begin(job, execution, claim.ranks, calm)
                    run = self._stream_run(function, job, execution)
                    claim.has_begun = True
                streams = [RankStream(run, rank) for rank in claim.ranks]
            raise_if_owed(self.pool)
        except BaseException:
            if run is not None:
                for rank in run.ranks:
                    run.abandon(rank)
            raise
        return streams

    def _stream_run(
        self, function: Function[..., Any], job: PackedCall, execution: Execution
    ) -> StreamRun:
        """What goes on with a generator that has begun, and releases its ranks once it is over."""
        ranks, display = execution.run.state.ranks, execution.display

        def end() -> Mapping[int, Any]:
            try:
                outcome = execution.finish()
            finally:
                self.claims.held.discard(run)
                self.claims.slots.release(ranks)
            with self.pool.lines.board.outside(), shown_to_its_end(display, self.pool):
                found = self._conclude(job, outcome, display)
            return dict(zip(found.ranks, found, strict=True))

        def owned() -> None:
            self.claims.slots.held_by_this_task(ranks)

        run = StreamRun(execution, function, end, owned)
        self.claims.held.add(run)
        owned()
        return run

    def _execution(
        self,
        job: PackedCall,
        ranks: tuple[int, ...],
        display: RunDisplay,
        title: str = "",
        among: tuple[int, ...] = (),
    ) -> Execution:
        """A run of a job on ranks that are taken, which asks for values of generators among its arguments."""
        if job.marks.stdout or job.marks.stderr:
            out, err = shown(job.marks, self.pool.infos)
            display.show_only("stdout", out)
            display.show_only("stderr", err)
        title = title or f"{job.name}() on {spell_result(ranks, self.pool.spec.world_size)}"
        execution = Execution(self._stage.displays, display, title, among=among)

        def wanted(event: ValueWanted) -> None:
            # What a thread asks for that has outlived its call is none of this one's.
            if event.run == execution.run.number:
                job.feeds.feed(self.pool, event)

        execution.handlers[ValueWanted] = wanted
        return execution

    def _begin(
        self,
        job: PackedCall,
        execution: Execution,
        ranks: tuple[int, ...],
        calm: contextlib.ExitStack,
    ) -> None:
        """Let a job run on ranks that are taken; `calm` as for `Pool.begin`.

        Where ranks were lost, all begin anew, and go on from a checkpoint, once nothing runs any more.
        """
        pool = self.pool
        while True:
            self._stage.displays.look()
            try:
                with self.claims.slots.alone(ranks, lambda: pool.runs.begins_alone):
                    job.feeds.begin(ranks)
                    try:
                        return execution.begin(self._request(job, ranks), calm)
                    except PoolBusy:  # it broke just now, or a cell of the notebook runs
                        if pool.driver.runs_a_cell:
                            raise
                time.sleep(_ROUND)
            except SlotDeadlock as stuck:
                self.claims.settle(stuck)
            except SlotsClosed:
                raise self.pool.context.closed_error() from None

    def run_script(self, script: Script, options: CellOptions) -> None:
        """Run a script on ranks of the pool, once they are free; raises what it raised, and `OptionError`."""
        pool, name = self.pool, script.name
        script.check_pool(pool.spec)
        if pool.spec.adds_frameworks:
            self.readiness.add(script.frameworks().of(is_installed))
        world = pool.spec.world_size
        ranks = parse_ranks("ranks", options.ranks, world)
        with (
            self.claims.claimed(ranks, all_of=True) as claim,
            claim.interrupt.as_before(),
            self._stage.behind(),
        ):
            display = self._stage.display(name)
            for stream, which in (("stdout", options.stdout), ("stderr", options.stderr)):
                display.show_only(stream, shown_ranks(stream, which, world))
            with shown_to_its_end(display, pool):
                title = f"Running {name} on {spell_result(ranks, world)}"
                request = script.request(ranks, options, pool.spec)
                outcome = execute(self._stage.displays, request, display, title)
                conclude(self._stage.displays, outcome, display, options, {})

    def _request(self, job: PackedCall, ranks: tuple[int, ...]) -> RunRequest:
        number = self._stage.number
        return RunRequest(
            cell=None,
            number=number,
            namespace=self._namespace,
            ranks=ranks,
            call=job.bundle,
            packed=job.packed,
            value_from=ranks,
            wants_value=True,
            aside=True,
            card=RunCard(
                number=number,
                text=f"{job.name}()",
                name=f"{job.name}()",
                began=time.time(),
                values=True,
                timeout=job.timeout,
            ),
        )

    def _conclude(
        self, job: PackedCall, outcome: RunOutcome, display: RunDisplay, *, ends: bool = True
    ) -> RankResults[Any]:
        # Its end is not within the lock: a run that begins holds the pool, and may show that.
        with concluding(self.pool, outcome, display):
            if job.feeds.error is None:
                self._bring(outcome, display)
            with self._stage.displays.lock:
                if job.feeds.error is not None:
                    display.end("failed", f"a generator among the arguments of {job.name}() failed")
                    raise job.feeds.error
                found = RunEnding({}, self.pool, outcome, display).values(job.timeout, ends=ends)
        return found

    def _bring(self, outcome: RunOutcome, display: RunDisplay) -> None:
        """Have what ranks sent home here, while others show what they have."""

        def watch(event: Event | None) -> None:
            with self._stage.displays.lock:
                display.watch(event)

        values = {rank: end.value for rank, end in outcome.done.items() if end.value is not None}
        with contextlib.suppress(OSError, PoolError):  # the end of the run raises it again
            self.pool.sending.bring(values, watch)

    # ── many calls ──────────────────────────────────────────────────────────────────────

    def run_each(
        self,
        jobs: Iterator[PackedCall],
        ranks: tuple[int, ...],
        title: str,
        ended: Callable[[RunDisplay], None] = lambda _: None,
        stops_by: StopsBy = lambda _: None,
    ) -> Generator[tuple[int, Any]]:
        """Run jobs, each on one of these ranks, as ranks get free; (number, value) of each as it ends.

        When one fails, or nobody wants more, the others are stopped. `ended` may show how far it is; `stops_by` gets what
        stops it from another thread.
        """
        self.pool.driver.forget_interrupts()
        display = self._stage.display(title)
        crowd = ConcurrentCalls(self.pool, self.claims.slots, title)
        stops_by(crowd.cancel)
        numbered: Iterator[tuple[int, PackedCall]] = enumerate(jobs)
        waiting = next(numbered, None)
        try:
            self.claims.held.add(crowd)
            with self._stage.behind(), shown_to_its_end(display, self.pool):
                while waiting is not None or crowd.going or crowd.ended:
                    crowd.check_wanted()
                    while waiting is not None and self._begin_one(waiting, crowd, ranks, display):
                        waiting = next(numbered, None)
                    if not crowd.ended:
                        crowd.settle()
                    while crowd.ended:
                        number, job, outcome = crowd.ended.popleft()
                        if outcome.ran_nothing:
                            numbered = itertools.chain([(number, job)], numbered)
                            waiting = waiting or next(numbered)
                            continue
                        value = self._conclude(job, outcome, display, ends=False).head
                        crowd.owned()
                        if not crowd.ended:  # each tells whether a rank has heard of it
                            raise_if_owed(self.pool)
                        with self._stopped_if_dropped(crowd, display):
                            yield number, value
                        ended(display)
                raise_if_owed(self.pool)
                display.end("finished", f"{title}: done")
        except BaseException:
            self.pool.driver.interrupts_told()  # a second one would end the ranks of those that are stopped
            raise
        finally:
            self.claims.held.discard(crowd)
            crowd.stop()

    @contextlib.contextmanager
    def _stopped_if_dropped(self, crowd: ConcurrentCalls, display: RunDisplay) -> Generator[None]:
        """Whoever drops a generator that waits inside has its calls stopped."""

        def stop() -> None:
            crowd.stop()
            if display.view.ended is None:
                display.end("interrupted", UNREAD)

        try:
            yield
        except GeneratorExit:
            at_drop(self.pool, stop)
            raise

    def _begin_one(
        self,
        waiting: tuple[int, PackedCall],
        crowd: ConcurrentCalls,
        ranks: tuple[int, ...],
        display: RunDisplay,
    ) -> bool:
        """Begin a call on one of these ranks that is free, or, where there is nothing else to do, gets free; whether there is one."""
        number, job = waiting
        waits = not (crowd.going or crowd.ended)
        with self.claims.claimed(ranks, is_wanted=crowd.is_wanted, waits=waits) as claim:
            if not claim.ranks:
                return False
            with claim.interrupt.as_before(), contextlib.ExitStack() as calm:
                execution = self._execution(job, claim.ranks, display, crowd.name, ranks)
                self._begin(job, execution, claim.ranks, calm)
                claim.has_begun = True
                crowd.begun(number, job, execution)
            return True
