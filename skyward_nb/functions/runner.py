"""How calls go through a pool: packed when they are made, run on ranks that are free, ended as cells are."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from IPython.core.getipython import get_ipython

from skyward_nb.functions.call_display import CallDisplay
from skyward_nb.functions.concurrent_calls import ConcurrentCalls
from skyward_nb.functions.function import Function, PendingFunction
from skyward_nb.functions.function_marks import Marks, marks_of, shown
from skyward_nb.functions.notebook_names import namespace_of
from skyward_nb.functions.rank_slots import RankSlots, SlotDeadlock, SlotsClosed
from skyward_nb.functions.rank_streams import Feeds, RankStream, StreamRun
from skyward_nb.options.plugin_options import missing
from skyward_nb.options.specs import readied_for
from skyward_nb.pickling.definitions import is_definition
from skyward_nb.pickling.payload import Bundle, pack
from skyward_nb.plugins.choices import PluginChoice
from skyward_nb.pool.lines import Watch
from skyward_nb.pool.outcome import RunOutcome, RunRequest
from skyward_nb.pool.pool import Pool
from skyward_nb.pool.run import ActiveRun
from skyward_nb.pool.sending import WARN_FROM
from skyward_nb.protocol.events import Event, ValueWanted
from skyward_nb.protocol.message_parts import Packed, RunCard
from skyward_nb.providers.folders import store_root
from skyward_nb.reports.results import RankResults
from skyward_nb.reports.run_ending import RunEnding
from skyward_nb.runtime.function_calls import Batch, Call, raw_of
from skyward_nb.show.display import RunDisplay, spell_result
from skyward_nb.store.blobs import memory_room
from skyward_nb.words.errors import PayloadError, PoolBusy, PoolError
from skyward_nb.words.ranks import count_ranks

_ROOM_LASTS = 1.0
_SETTLES = 0.5
_FIRST_BATCH = 1
_BATCH = 0.1
"""Seconds that a batch of a map may take, after which there is something new to tell."""
_LEAST = 0.002
"""Seconds that it should take at least, so that little is lost by handing it out."""


@dataclass
class Job:
    """A call that is ready to be sent: `packed` is it in the ranks' store, if it had to wait."""

    name: str
    bundle: Bundle
    timeout: float | None = None
    packed: Packed | None = None
    feeds: Feeds = field(default_factory=Feeds)
    """The generators among its arguments."""
    marks: Marks = field(default_factory=Marks)


class Runner:
    """Runs calls on the ranks of one pool that is up; from any thread."""

    def __init__(self, pool: Pool, stage: CallDisplay, shares_files: bool) -> None:
        self.pool = pool
        self._stage = stage
        self._shares_files = shares_files
        self._slots = RankSlots({info.rank: info.node for info in pool.infos})
        pool.closing.before_close.append(self._slots.close)
        self._namespace = namespace_of(get_ipython())
        self._room = (float("-inf"), 0)
        self._speeds: weakref.WeakKeyDictionary[Callable[..., Any], float] = (
            weakref.WeakKeyDictionary()
        )
        """Seconds that an item of an earlier map took, by the function."""
        self._held: set[StreamRun | ConcurrentCalls] = set()
        """What goes on only when the thread that has it asks for more."""

    # ── packing ─────────────────────────────────────────────────────────────────────────

    def job(self, call: PendingFunction[Any]) -> Job:
        """Pack a call as it is now; raises `PayloadError` naming the argument that cannot travel."""
        function = call.function
        feeds = Feeds()
        args = tuple(map(feeds.stand_in, call.args))
        kwargs = {name: feeds.stand_in(value) for name, value in call.kwargs.items()}
        made = Call(_lean(function), args, kwargs, function.is_stream)
        try:
            bundle = pack(f"{function.name}()", made, to_ranks=True)
        except PayloadError:
            _blame_argument(function.raw, call.args, call.kwargs)
            raise
        return Job(function.name, bundle, call.timeout, feeds=feeds, marks=marks_of(function.raw))

    def stow(self, job: Job) -> Job:
        """Keep a job as it is now, for later."""
        job.packed = self.pool.sending.stow(job.bundle)
        return job

    # ── one call ────────────────────────────────────────────────────────────────────────

    def run(
        self,
        job: Job,
        ranks: Sequence[int],
        *,
        all_of: bool,
        begun: Callable[[ActiveRun], None] = lambda _: None,
    ) -> RankResults[Any]:
        """Run a job on one of these ranks, or on all; returns what it returned, or raises what it raised."""
        with self._claimed(ranks, all_of=all_of) as taken, self._stage.behind():
            display = self._stage.display(f"{job.name}()")

            def once() -> RunOutcome:
                with contextlib.ExitStack() as calm:
                    run, watch = self._begin(job, taken, display, calm)
                    begun(run)
                    try:
                        return self.pool.finish(run, watch)
                    finally:
                        self._stage.end(display, run.number)

            with _shown_to_its_end(display, self.pool):
                outcome = once()
                # Where ranks have dropped what it was to point at, it goes whole now.
                outcome = once() if outcome.ran_nothing else outcome
                return self._conclude(job, outcome, display)

    def stream(
        self, call: PendingFunction[Any], ranks: Sequence[int], *, all_of: bool
    ) -> list[RankStream]:
        """Begin a generator on one of these ranks, or on all; what each of them yields."""
        job = self.job(call)
        taken = self._claim(ranks, all_of=all_of)
        display = self._stage.display(f"{job.name}()")

        def end() -> Mapping[int, Any]:
            try:
                outcome = self.pool.finish(begun, watch)
            finally:
                self._held.discard(run)
                self._slots.release(taken)
                self._stage.end(display, begun.number)
            with _shown_to_its_end(display, self.pool):
                found = self._conclude(job, outcome, display)
            return dict(zip(found.ranks, found, strict=True))

        def owned() -> None:
            self._slots.held_by_this_thread(taken)

        with contextlib.ExitStack() as calm:
            try:
                begun, watch = self._begin(job, taken, display, calm)
            except BaseException:
                self._slots.release(taken)
                raise
            run = StreamRun(self.pool, begun, watch, call.function, end, owned)
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
        held = [run for run in self._held if stuck.ranks & set(run.ranks)]
        if not any(run.settle(_SETTLES) for run in held):
            names = ", ".join(dict.fromkeys(run.name for run in held))
            raise PoolError(
                self.pool.spec.name,
                f"{count_ranks(stuck.ranks)} {'is' if len(stuck.ranks) == 1 else 'are'} held by "
                f"{names}, whose values nobody takes now: take them all, or .close() it",
            ) from None

    @contextlib.contextmanager
    def _claimed(self, ranks: Sequence[int], *, all_of: bool) -> Generator[tuple[int, ...]]:
        taken = self._claim(ranks, all_of=all_of)
        try:
            yield taken
        finally:
            self._slots.release(taken)

    def _begin(
        self,
        job: Job,
        ranks: tuple[int, ...],
        display: RunDisplay,
        calm: contextlib.ExitStack,
        among: tuple[int, ...] = (),
        title: str = "",
    ) -> tuple[ActiveRun, Watch]:
        """Let a job run on ranks that are taken; what hears its events. `calm` as for `Pool.begin`.

        Where ranks were lost, all begin anew, once nothing runs any more.
        """
        pool = self.pool
        self._show_only(job.marks, display)
        title = title or f"{job.name}() on {spell_result(ranks, pool.spec.world_size)}"
        while True:
            self._stage.look()
            try:
                with self._slots.alone(ranks, lambda: not pool.is_ready):
                    shown = self._stage.begin(pool, display, ranks, title, among)
                    watch = self._feeding(job, ranks, shown) if job.feeds else shown
                    with contextlib.suppress(PoolBusy):  # it broke just now
                        request = self._request(job, ranks)
                        return pool.begin(request, watch, display.sending, calm), watch
            except SlotDeadlock as stuck:
                self._settle(stuck)
            except SlotsClosed:
                raise self.pool.context.closed_error() from None

    def _show_only(self, marks: Marks, display: RunDisplay) -> None:
        """Show of a function's output what it is marked to show."""
        if marks.stdout or marks.stderr:
            out, err = shown(marks, self.pool.infos)
            display.show_only("stdout", out)
            display.show_only("stderr", err)

    def ready(self, uses: tuple[PluginChoice, ...]) -> None:
        """Have the ranks readied for what a function uses, if they are not: a new generation then.

        Raises `OptionError` where that contradicts what the pool is made with.
        """
        if not uses or not missing(self.pool.spec, uses):
            return
        with self._claimed(self.pool.ranks, all_of=True):
            if missing(self.pool.spec, uses):
                spec = readied_for(self.pool.spec, uses)
                display = self._stage.display(f"Readying {','.join(spec.framework)}")
                try:
                    self.pool.become(spec, display.watch)
                except BaseException as error:
                    display.end("failed", str(error).partition("\n")[0] or "Interrupted")
                    raise
                self._stage.describe(self.pool)
                display.end("finished", f"Ranks are ready for {','.join(spec.framework)}")

    def _feeding(self, job: Job, ranks: tuple[int, ...], shown: Watch) -> Watch:
        """What hears a run's events, and gives its ranks the values of generators that they want."""
        job.feeds.begin(ranks)

        def watch(event: Event | None) -> None:
            if isinstance(event, ValueWanted):
                job.feeds.feed(self.pool, event)
            else:
                shown(event)

        return watch

    def _request(self, job: Job, ranks: tuple[int, ...]) -> RunRequest:
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
            limit=self._most_bytes(len(ranks)),
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
        self, job: Job, outcome: RunOutcome, display: RunDisplay, *, ends: bool = True
    ) -> RankResults[Any]:
        try:
            if job.feeds.error is None and not outcome.failed:
                self._bring(outcome, display)
            with self._stage.locked():
                if job.feeds.error is not None:
                    display.end("failed", f"a generator among the arguments of {job.name}() failed")
                    raise job.feeds.error
                return RunEnding({}, self.pool, outcome, display).values(job.timeout, ends=ends)
        finally:
            # Not while nothing else is shown: a run that begins holds the pool, and may show that.
            if not self.pool.closed:
                self.pool.seen()
            self.pool.clean(outcome)

    def _bring(self, outcome: RunOutcome, display: RunDisplay) -> None:
        """Have what ranks sent home here, while others show what they have."""

        def watch(event: Event | None) -> None:
            with self._stage.locked():
                display.watch(event)

        values = {rank: end.value for rank, end in outcome.done.items() if end.value is not None}
        with contextlib.suppress(OSError):  # what hinders it is told of at the run's end
            self.pool.sending.bring(values, watch)

    def _most_bytes(self, ranks: int) -> int:
        """The most that a value may have to come back: over a network 256 MB, else what memory holds."""
        if not self._shares_files:
            return WARN_FROM
        now = time.monotonic()
        if now - self._room[0] > _ROOM_LASTS:
            self._room = (now, memory_room(store_root()))
        return max(WARN_FROM, self._room[1] // (2 * ranks))

    # ── many calls ──────────────────────────────────────────────────────────────────────

    def run_each(
        self,
        jobs: Iterator[Job],
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
        numbered: Iterator[tuple[int, Job]] = enumerate(jobs)
        waiting = next(numbered, None)
        try:
            with self._stage.behind(), _shown_to_its_end(display, self.pool):
                while waiting is not None or crowd.going or crowd.ended:
                    while waiting is not None and (taken := self._take(ranks, crowd)):
                        begin = functools.partial(
                            self._begin, waiting[1], taken, display, among=ranks, title=title
                        )
                        crowd.begin(*waiting, taken, begin)
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
            self._stage.end(display)

    def _take(self, ranks: Sequence[int], crowd: ConcurrentCalls) -> tuple[int, ...]:
        """One of these ranks: one that is free, or, where there is nothing else to do, gets free."""
        if crowd.going or crowd.ended:
            return self._slots.try_claim(ranks)
        return self._claim(ranks)

    def map(
        self,
        function: Callable[..., Any],
        items: Sequence[tuple[Any, ...]],
        ranks: tuple[int, ...],
        timeout: float | None,
    ) -> list[Any]:
        """The value of a function for each of these tuples of arguments, in order."""
        began = time.monotonic()
        values: list[Any] = [None] * len(items)
        sizes = _Sizes(len(items), len(ranks), self._speed_of(function))
        lean = _lean(function) if isinstance(function, Function) else function
        name = getattr(function, "__qualname__", type(function).__name__)
        starts: list[int] = []
        marks = marks_of(raw_of(function))
        done = 0

        def jobs() -> Iterator[Job]:
            at = 0
            while at < len(items):
                size = sizes.next(at)
                batch = Batch(lean, list(items[at : at + size]), at)
                try:
                    bundle = pack(f"{name}()", batch, to_ranks=True)
                except PayloadError:
                    for number, args in enumerate(batch.items, at):
                        _blame_argument(function, args, {}, f"item {number} of the map")
                    raise
                starts.append(at)
                yield Job(name, bundle, timeout, marks=marks)
                at += size

        def ended(display: RunDisplay) -> None:
            display.loop(done, len(items), time.monotonic() - began)

        title = f"{name}() of {len(items):,} items"
        for number, (each, seconds) in self.run_each(jobs(), ranks, title, ended):
            values[starts[number] : starts[number] + len(each)] = each
            done += len(each)
            sizes.took(seconds / len(each))
        if sizes.each is not None:
            with contextlib.suppress(TypeError):  # it cannot be held weakly
                self._speeds[function] = sizes.each
        return values

    def _speed_of(self, function: Callable[..., Any]) -> float | None:
        with contextlib.suppress(TypeError):
            return self._speeds.get(function)
        return None


@contextlib.contextmanager
def _shown_to_its_end(display: RunDisplay, pool: Pool) -> Generator[None]:
    """Whatever ends a run ends its picture."""
    try:
        yield
    except BaseException as error:
        if display.view.ended is None:
            words = str(error).partition("\n")[0] or "Stopped: nobody takes more"
            stopped = isinstance(error, KeyboardInterrupt | GeneratorExit)
            if isinstance(error, PoolError) and pool.closed and not pool.context.gone:
                stopped, words = True, "Stopped: the pool was closed"
            display.end("interrupted" if stopped else "failed", words)
        raise


class _Sizes:
    """How many items go into a batch: few until it is known how long `each` takes, in seconds."""

    def __init__(self, items: int, ranks: int, each: float | None = None) -> None:
        self._items = items
        self._ranks = ranks
        self.each = each

    def next(self, at: int) -> int:
        """The number of items of the next batch."""
        left = self._items - at
        if self.each is None:
            return min(left, _FIRST_BATCH)
        rate = 1 / max(self.each, 1e-7)
        # Less and less, so that nobody waits long for the last one; but not for next to nothing.
        least = min(int(_LEAST * rate), -(-self._items // self._ranks))
        share = max(-(-left // (2 * self._ranks)), least)
        return max(1, min(left, share, int(_BATCH * rate)))

    def took(self, seconds: float) -> None:
        """So long an item of a batch took."""
        self.each = seconds if self.each is None else (self.each + seconds) / 2


def _lean(function: Function[..., Any]) -> Callable[..., Any]:
    """What to send for a function: itself alone, where a label stands for it."""
    return function.raw if is_definition(function.raw) else function


def _blame_argument(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], note: str = ""
) -> None:
    """Raise `PayloadError` for the argument that cannot travel, by its own name, if it is one."""
    try:
        given = inspect.signature(raw_of(function)).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # some of C do not tell what they take
        given = {f"argument {number}": value for number, value in enumerate(args, 1)} | dict(kwargs)
    try:
        for name, value in given.items():
            pack(name, value, to_ranks=True)
    except PayloadError as error:
        if note:
            error.add_note(note)
        raise
