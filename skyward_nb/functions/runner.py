"""How calls go through a pool: packed when they are made, run on ranks that are free, ended as cells are."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

from IPython.core.getipython import get_ipython

from skyward_nb.functions.call_display import CallDisplay
from skyward_nb.functions.concurrent_calls import ConcurrentCalls
from skyward_nb.functions.function import Function
from skyward_nb.functions.function_marks import shown
from skyward_nb.functions.notebook_names import namespace_of
from skyward_nb.functions.packed_calls import PackedCall
from skyward_nb.functions.rank_slots import RankSlots, SlotDeadlock, SlotsClosed
from skyward_nb.functions.rank_streams import RankStream, StreamRun
from skyward_nb.functions.told_to_end import exits_if_told
from skyward_nb.functions.used_frameworks import UsedFrameworks
from skyward_nb.options.cell_options import CellOptions
from skyward_nb.options.framework_choice import FrameworkChoice
from skyward_nb.options.plugin_options import missing
from skyward_nb.options.specs import extended, extended_by_choice, readied_for
from skyward_nb.plugins.choices import PluginChoice
from skyward_nb.plugins.plugin_table import is_installed
from skyward_nb.pool.installing import added_words
from skyward_nb.pool.outcome import ActiveRun, RunOutcome, RunRequest
from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.events import Event, ValueWanted
from skyward_nb.protocol.message_parts import RunCard
from skyward_nb.reports.execution import Execution, concluding, execute
from skyward_nb.reports.results import RankResults
from skyward_nb.reports.run_ending import RunEnding, conclude
from skyward_nb.reports.scripts import Script
from skyward_nb.show.display import RunDisplay, spell_result
from skyward_nb.words.errors import PoolBusy, PoolError, StartError
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.ranks import count_ranks, parse_ranks, shown_ranks
from skyward_nb.words.simulation import simulation_notes
from skyward_nb.words.spec import PoolSpec

_SETTLES = 0.5


class Runner:
    """Runs calls on the ranks of one pool that is up; from any thread."""

    def __init__(self, pool: Pool, stage: CallDisplay) -> None:
        self.pool = pool
        self._stage = stage
        self._slots = RankSlots({info.rank: info.node for info in pool.infos})
        pool.closing.before_close.append(self._slots.close)
        self._namespace = namespace_of(get_ipython())
        self._used = UsedFrameworks(self._namespace)
        self._refused: set[str] = set()
        """Frameworks that functions use and that did not come up."""
        self.speeds: weakref.WeakKeyDictionary[Callable[..., Any], float] = (
            weakref.WeakKeyDictionary()
        )
        """Seconds that an item of an earlier map took, by the function."""
        self._held: set[StreamRun | ConcurrentCalls] = set()
        """What goes on only when the thread that has it asks for more."""

    # ── one call ────────────────────────────────────────────────────────────────────────

    def run(
        self,
        job: PackedCall,
        ranks: Sequence[int],
        *,
        all_of: bool,
        begun: Callable[[ActiveRun], None] = lambda _: None,
    ) -> RankResults[Any]:
        """Run a job on one of these ranks, or on all; returns what it returned, or raises what it raised."""
        with self._claimed(ranks, all_of=all_of) as taken, self._stage.behind():
            display = self._stage.display(f"{job.name}()")
            with _shown_to_its_end(display, self.pool):
                execution = self._execution(job, taken, display)

                def begin(calm: contextlib.ExitStack) -> None:
                    self._begin(job, execution, taken, calm)
                    begun(execution.run)

                return self._conclude(job, execution.execute(begin), display)

    def stream(
        self, function: Function[..., Any], job: PackedCall, ranks: Sequence[int], *, all_of: bool
    ) -> list[RankStream]:
        """Begin a generator on one of these ranks, or on all; what each of them yields."""
        taken = self._claim(ranks, all_of=all_of)
        display = self._stage.display(f"{job.name}()")

        def end() -> Mapping[int, Any]:
            try:
                outcome = execution.finish()
            finally:
                self._held.discard(run)
                self._slots.release(taken)
            with _shown_to_its_end(display, self.pool):
                found = self._conclude(job, outcome, display)
            return dict(zip(found.ranks, found, strict=True))

        def owned() -> None:
            self._slots.held_by_this_thread(taken)

        with contextlib.ExitStack() as calm:
            with self._released_on_error(taken):
                execution = self._execution(job, taken, display)
                self._begin(job, execution, taken, calm)
            run = StreamRun(execution, function, end, owned)
            self._held.add(run)
            owned()
            return [RankStream(run, rank) for rank in taken]

    def _claim(self, ranks: Sequence[int], *, all_of: bool = False) -> tuple[int, ...]:
        """Take one of these ranks, or all; waits until they are free.

        Raises `PoolError` where they never would be: this thread has generators on them, and takes
        no values; or the pool is closed meanwhile.
        """
        while True:
            try:
                return self._slots.claim(ranks, all_of=all_of)
            except SlotDeadlock as stuck:
                self._settle(stuck)
            except SlotsClosed:
                raise self.pool.context.closed_error() from None

    def _settle(self, stuck: SlotDeadlock) -> None:
        """Have what this thread holds come to its end, if it does without its values taken."""
        held = [run for run in tuple(self._held) if stuck.ranks & set(run.ranks)]
        if not any(run.settle(_SETTLES) for run in held):
            names = ", ".join(dict.fromkeys(run.name for run in held))
            raise PoolError(
                self.pool.spec.name,
                f"{count_ranks(stuck.ranks)} {'is' if len(stuck.ranks) == 1 else 'are'} still used by "
                f"{names}, whose values were not all read: read them, or .close() it",
            ) from None

    @contextlib.contextmanager
    def _released_on_error(self, taken: tuple[int, ...]) -> Generator[None]:
        """Release ranks that were claimed if nothing begins on them."""
        try:
            yield
        except BaseException:
            self._slots.release(taken)
            raise

    @contextlib.contextmanager
    def _claimed(self, ranks: Sequence[int], *, all_of: bool) -> Generator[tuple[int, ...]]:
        taken = self._claim(ranks, all_of=all_of)
        try:
            yield taken
        finally:
            self._slots.release(taken)

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
        execution.handlers[ValueWanted] = functools.partial(job.feeds.feed, self.pool)
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
                with self._slots.alone(ranks, lambda: pool.runs.begins_alone):
                    job.feeds.begin(ranks)
                    try:
                        return execution.begin(self._request(job, ranks), calm)
                    except PoolBusy:  # it broke just now, or a cell of the notebook runs
                        if pool.driver.runs_a_cell:
                            raise
            except SlotDeadlock as stuck:
                self._settle(stuck)
            except SlotsClosed:
                raise self.pool.context.closed_error() from None

    def ready(
        self, uses: tuple[PluginChoice, ...], functions: Sequence[Callable[..., Any]]
    ) -> None:
        """Prepare the ranks for the frameworks that functions use, if they are not: by a new generation.

        That are the plugins that their decorators name; of a pool that was made without any, also the
        frameworks that they import. Raises `OptionError` where that contradicts what the pool is made with.
        """
        if uses and missing(self.pool.spec, uses):
            with self._claimed(self.pool.ranks, all_of=True):
                if missing(self.pool.spec, uses):
                    self._become(readied_for(self.pool.spec, uses))
        if self.pool.spec.adds_frameworks:
            self._add(self._used.of(functions))

    def run_script(self, script: Script, options: CellOptions) -> None:
        """Run a script on ranks of the pool, once they are free; raises what it raised, and `OptionError`."""
        pool, name = self.pool, script.name
        script.check_pool(pool.spec)
        if pool.spec.adds_frameworks:
            self._add(script.frameworks().of(is_installed))
        world = pool.spec.world_size
        ranks = parse_ranks("ranks", options.ranks, world)
        with self._claimed(ranks, all_of=True), self._stage.behind():
            display = self._stage.display(name)
            for stream, which in (("stdout", options.stdout), ("stderr", options.stderr)):
                display.show_only(stream, shown_ranks(stream, which, world))
            with _shown_to_its_end(display, pool):
                title = f"Running {name} on {spell_result(ranks, world)}"
                request = script.request(ranks, options, pool.spec)
                outcome = execute(self._stage.displays, request, display, title)
                conclude(self._stage.displays, outcome, display, options, {})

    def install(self, packages: Sequence[str]) -> None:
        """Install packages on all machines, once ranks are free; these begin anew with them."""
        with self._claimed(self.pool.ranks, all_of=True):
            spec = extended(self.pool.spec, PoolOptions(pip=tuple(packages)))
            if spec is not self.pool.spec:
                self._become(spec)

    def _add(self, chosen: FrameworkChoice) -> None:
        """Prepare the ranks for frameworks, but for those that did not come up before."""
        chosen = chosen.of(lambda word: word not in self._refused)
        if chosen.words and self._extended(chosen) is not self.pool.spec:
            with self._claimed(self.pool.ranks, all_of=True):
                if (spec := self._extended(chosen)) is not self.pool.spec:
                    try:
                        self._become(spec, str(chosen))
                    except StartError:  # nobody asked for it: the picture tells it
                        self._refused.update(chosen.words)

    def _extended(self, chosen: FrameworkChoice) -> PoolSpec:
        return extended_by_choice(self.pool.spec, chosen, asked=False)[0]

    def _become(self, spec: PoolSpec, note: str = "") -> None:
        what = added_words(spec, self.pool.spec)
        display = self._stage.display(f"Readying {what}")
        told = simulation_notes(spec, self.pool.spec)
        try:
            change = self.pool.become(spec, display.watch)
        except BaseException as error:
            # One that nobody asked for is told by the picture alone.
            display.error_follows = not note and isinstance(error, Exception)
            display.fail(error)
            raise
        notes = (note, *told) if note else told
        notes += change.notes
        display.end("finished", f"Ranks are ready for {what}", notes=notes)

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
        with concluding(self.pool, outcome):
            if job.feeds.error is None:
                self._bring(outcome, display)
            with self._stage.displays.lock:
                if job.feeds.error is not None:
                    display.end("failed", f"a generator among the arguments of {job.name}() failed")
                    raise job.feeds.error
                return RunEnding({}, self.pool, outcome, display).values(job.timeout, ends=ends)

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
    ) -> Generator[tuple[int, Any]]:
        """Run jobs, each on one of these ranks, as ranks get free; (number, value) of each as it ends.

        When one fails, or nobody wants more, the others are stopped. `ended` may show how far it is.
        """
        display = self._stage.display(title)
        crowd = ConcurrentCalls(self.pool, self._slots, title)
        self._held.add(crowd)
        numbered: Iterator[tuple[int, PackedCall]] = enumerate(jobs)
        waiting = next(numbered, None)
        try:
            with self._stage.behind(), _shown_to_its_end(display, self.pool):
                while waiting is not None or crowd.going or crowd.ended:
                    while waiting is not None and (taken := self._take(ranks, crowd)):
                        number, job = waiting
                        with self._released_on_error(taken), contextlib.ExitStack() as calm:
                            execution = self._execution(job, taken, display, title, ranks)
                            self._begin(job, execution, taken, calm)
                            crowd.begun(number, job, execution)
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
                        yield number, value
                        ended(display)
                display.end("finished", f"{title}: done")
        finally:
            self._held.discard(crowd)
            crowd.stop()

    def _take(self, ranks: Sequence[int], crowd: ConcurrentCalls) -> tuple[int, ...]:
        """One of these ranks: one that is free, or, where there is nothing else to do, gets free."""
        if crowd.going or crowd.ended:
            return self._slots.try_claim(ranks)
        return self._claim(ranks)


@contextlib.contextmanager
def _shown_to_its_end(display: RunDisplay, pool: Pool) -> Generator[None]:
    """Whatever ends a run ends its picture."""
    with exits_if_told(), _ends_its_picture(display, pool):
        yield


@contextlib.contextmanager
def _ends_its_picture(display: RunDisplay, pool: Pool) -> Generator[None]:
    try:
        yield
    except BaseException as error:
        if display.view.ended is None:
            words = str(error).partition("\n")[0] or "Stopped: its values are not taken any more"
            stopped = isinstance(error, KeyboardInterrupt | GeneratorExit)
            if isinstance(error, PoolError) and pool.closed and not pool.context.gone:
                stopped, words = True, "Stopped: the pool was closed"
            display.end("interrupted" if stopped else "failed", words)
        raise
