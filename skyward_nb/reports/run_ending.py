"""What a finished run becomes: values bound in the notebook, the last picture, or an exception."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from IPython.core.getipython import get_ipython

from skyward_nb.hangs.hang import spell_span
from skyward_nb.hangs.rank_locations import Source, whereabouts
from skyward_nb.hangs.stacks import threads
from skyward_nb.options.cell_options import CellOptions
from skyward_nb.pickling.payload import map_all, unpack
from skyward_nb.pool.outcome import RunOutcome
from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.events import RankDone
from skyward_nb.protocol.message_parts import RUN_VALUE, Packed, Unsendable
from skyward_nb.reports.exception_groups import has_group, show_groups
from skyward_nb.reports.execution import concluding
from skyward_nb.reports.fetched_files import fetch_files
from skyward_nb.reports.missing_modules import of_missing_modules
from skyward_nb.reports.rank_failures import (
    brief,
    died,
    exception_of,
    failures_of,
    headline_of,
    how_died,
    show,
    timed_out,
    why_stopped,
)
from skyward_nb.reports.rejections import rejection_of
from skyward_nb.reports.results import RankResults, UnreturnedValue, why_it_stays
from skyward_nb.reports.rewrapping import wrapping_lines
from skyward_nb.reports.run_notes import (
    crashed_waiting,
    deaths,
    halt_of,
    of_a_collective_timeout,
    of_a_lost_gpu,
    of_a_memory_limit,
    of_an_old_group,
    of_waits,
    run_notes,
    whereabouts_of,
)
from skyward_nb.reports.run_profiles import profiles_of, table, told
from skyward_nb.reports.source_lines import sources
from skyward_nb.show.display import RunDisplay, spell_result
from skyward_nb.show.pool_displays import PoolDisplays
from skyward_nb.view.run_view import FailedLine
from skyward_nb.words.checkpoints import StoppedAtNotice
from skyward_nb.words.controls import spelt
from skyward_nb.words.errors import OptionError, PayloadError, PoolError, ResultTooLarge, SkyError
from skyward_nb.words.ranks import count_ranks

T = TypeVar("T")


def conclude(
    displays: PoolDisplays,
    outcome: RunOutcome,
    display: RunDisplay,
    options: CellOptions,
    user_ns: dict[str, Any],
    writes: frozenset[str] = frozenset(),
    *,
    goes_on: bool = True,
) -> object:
    """Bind the values of a run and return the one to show, or raise; then draw displays with late output."""
    pool = displays.pool
    try:
        with concluding(pool, outcome, display):
            fetched = fetch_files(pool, outcome.folder, outcome.ranks, display.watch)
            display.took_files(fetched.notes, lacks_some=fetched.lacks_some)
            ending = RunEnding(user_ns, pool, outcome, display, goes_on=goes_on)
            return ending.conclude(options, writes)
    finally:
        displays.renew()


class RunEnding:
    """What a finished run becomes: values bound, the display's last state, or an exception.

    `goes_on` says whether code goes on with these ranks and their names: after a script none does.
    """

    def __init__(
        self,
        user_ns: dict[str, Any],
        pool: Pool,
        outcome: RunOutcome,
        display: RunDisplay,
        source: Source | None = None,
        *,
        goes_on: bool = True,
    ) -> None:
        self._user_ns = user_ns
        self._pool = pool
        self._outcome = outcome
        self._display = display
        self._goes_on = goes_on
        self._store = pool.store
        self._broken: dict[tuple[str, str], list[int]] = {}
        self._wants_value = True
        self._source = source or sources(get_ipython())
        self._where = whereabouts_of(outcome, self._source)

    def conclude(self, options: CellOptions, writes: frozenset[str]) -> object:
        """Bind what came back and return the value to show, or raise."""
        return self._conclude(options.timeout, lambda: self._bind(options, writes))

    def values(self, timeout: float | None, *, ends: bool = True) -> RankResults[Any]:
        """What a call returned on each rank, or raise; `ends`: nothing else is shown there."""
        return self._conclude(timeout, lambda: self._values("the value"), ends=ends)

    def _conclude(
        self, timeout: float | None, value_of: Callable[[], T], *, ends: bool = True
    ) -> T:
        outcome = self._outcome
        limit = of_a_memory_limit(outcome.failed, deaths(outcome), self._pool.spec.memory_limit)
        lost_gpu = of_a_lost_gpu(outcome.failed)
        notes = (*limit, *lost_gpu, *self._run_notes(), *outcome.plan.notes, *self._spilled())
        # Not with the rest, which an exception carries, too.
        if profiles := profiles_of(outcome.done, self._store):
            number, _, run = self._display.view.run.rpartition("/")
            self._display.change(tables=(table(profiles),))
            self._display.note(*told(profiles, f"{number}-run{run}", Path.cwd()))
        if outcome.interrupted and not self._all_ended_well():
            raise self._interrupted((*self._deaths(), *notes))
        if (rejected := rejection_of(outcome)) is not None:
            self._display.fail(rejected, notes=notes)
            raise rejected
        if (ended := self._ended_badly(timeout or 0.0, notes)) is not None:
            raise ended
        notes = (*(f"{line}; the others went on without" for line in self._deaths()), *notes)
        try:
            value = value_of()
        except PoolError as error:
            self._display.fail(error, notes=notes)
            raise
        if (error := self._not_returned()) is not None:
            self._display.fail(error, notes=notes)
            raise error
        if ends:
            ran = spell_result(outcome.ranks, self._pool.spec.world_size)
            self._display.end("finished", f"{ran} finished", notes=notes)
        return value

    def _ended_badly(self, timeout: float, notes: tuple[str, ...]) -> BaseException | None:
        """The error for ranks that took too long, failed, died, or were stopped at a notice."""
        outcome = self._outcome
        if outcome.timed_out:
            return self._after_timeout(timeout, notes)
        if outcome.failed:
            return self._failed(notes)
        if outcome.lost and not self._is_enough():
            return self._died(notes)
        if outcome.reclaimed and not self._all_ended_well():
            stopped = StoppedAtNotice("; ".join(self._pool.renewal.notices))
            self._display.fail(stopped, notes=notes)
            return stopped
        return None

    def _all_ended_well(self) -> bool:
        """Whether every rank came to the cell's end, as one does that handles an interrupt."""
        done = self._outcome.done.values()
        return not self._outcome.lost and all(
            end.failure is None and end.rejected is None for end in done
        )

    def _is_enough(self) -> bool:
        """Whether so many ranks ended well that the run did, though others were lost."""
        outcome = self._outcome
        return bool(outcome.fewest) and len(outcome.done) >= outcome.fewest

    # ── the good end ────────────────────────────────────────────────────────────────────

    def _bind(self, options: CellOptions, writes: frozenset[str]) -> object:
        head_only = options.gather == "head"
        done = self._outcome.done
        for name in options.pull:
            target = options.target or name
            each = {rank: end.pulled[name] for rank, end in done.items() if name in end.pulled}
            if each:
                value = self._gather(each, name)
                if not value:
                    continue
                self._user_ns[target] = value.head if head_only else value
                if target == name:
                    self._pool.sending.bound_here(name, self._user_ns[name], each)
        packed = {rank: end.value for rank, end in done.items() if end.value is not None}
        results: RankResults[Any] = self._gather(packed, RUN_VALUE)
        self._wants_value = options.asks_for_value
        if not self._wants_value and (unreturned := self._unreturned()):
            results = results.with_values(unreturned)
        if not results:
            return None
        value = results.head if head_only else results
        if out := options.out:
            self._user_ns[out] = value
            if out in writes:
                self._pool.sending.bound_here(out, value, packed)
        nothing = all(each is None for each in results)
        return None if nothing else value

    def _unreturned(self) -> dict[int, UnreturnedValue]:
        """What stands for the values that stay on their ranks, which a note tells; nobody asked for them."""
        found: dict[int, UnreturnedValue] = {}
        whys: list[str] = []
        for rank, end in sorted(self._outcome.done.items()):
            for bad in (each for each in end.unsendable if each.name == RUN_VALUE):
                found[rank] = UnreturnedValue(bad.shown)
                whys.append(self._not_packed(bad, rank).message)
        for name, reason in [key for key in self._broken if key[0] == RUN_VALUE]:
            ranks = self._broken.pop((name, reason))
            found |= {rank: UnreturnedValue() for rank in ranks}
            whys.append(f"it cannot be rebuilt in the notebook: {reason}")
        if whys:
            self._display.note(why_it_stays(whys[0]))
        return found

    def _values(self, name: str) -> RankResults[Any]:
        ends = self._outcome.done.items()
        return self._gather({rank: end.value for rank, end in ends if end.value}, name)

    def _gather(self, packed: Mapping[int, Packed], name: str) -> RankResults[Any]:
        """The values that can be rebuilt here; the others are reported at the end."""
        nodes = {info.rank: info.node for info in self._pool.infos}
        values: dict[int, Any] = {}
        try:
            self._pool.sending.bring(packed, self._display.watch)
        except OSError as error:
            reason = f"it could not be brought: {error.strerror or error}"
            self._broken[name, reason] = list(packed)
            return RankResults(values, nodes)
        store_of, only_values = self._pool.context.stores.of, self._pool.spec.only_values
        mapped = map_all((each, store_of((rank,))) for rank, each in packed.items())
        for rank, each in packed.items():
            try:
                own = store_of((rank,))
                there = mapped.pop(each.digest, None)
                values[rank] = unpack(each, own, mapped=there, only_values=only_values)
            except Exception as error:  # noqa: BLE001 - rebuilding runs a user's code
                reason = spelt(f"{type(error).__name__}: {error}")
                self._broken.setdefault((name, reason), []).append(rank)
        return RankResults(values, nodes)

    def _finished(self) -> RankResults[Any]:
        """Values of the ranks that came to the end of a run that failed, as far as they can be read."""
        try:
            return self._values("a value")
        except PoolError:  # the failure itself is reported
            return RankResults({}, {})

    def _not_returned(self) -> SkyError | None:
        """The error for a requested value that did not come back; everything else is bound."""
        lacking: dict[str, list[int]] = {}
        for rank, end in sorted(self._outcome.done.items()):
            for bad in end.unsendable:
                if self._wants_value or bad.name != RUN_VALUE:
                    return self._not_packed(bad, rank)
            for name in end.missing:
                lacking.setdefault(name, []).append(rank)
        for (name, reason), ranks in self._broken.items():
            advice = "The cell ran, and its names are on the ranks: bring what can be rebuilt here."
            lack, whose = "cannot be rebuilt in the notebook", f"of {count_ranks(ranks)}"
            return PayloadError(name, name, whose, reason, advice, lack)
        for name, ranks in lacking.items():
            return OptionError("pull", f"pull={name}: no such name on {count_ranks(ranks)}")
        return None

    def _not_packed(self, bad: Unsendable, rank: int) -> PayloadError:
        if bad.size:
            return ResultTooLarge(bad.name, bad.size, self._outcome.limit or 0, rank)
        advice = (
            "It stays on the ranks: bring what can travel, or make a part of it there and "
            "bring that. A cell that ends with `;` brings nothing."
        )
        if self._outcome.apart:
            advice = "It stays on the ranks: return what can travel, or a part of it."
        reason = f"{bad.reason} (on rank {rank})" if bad.reason else f"on rank {rank}"
        return PayloadError(bad.name, bad.path, bad.type_name, reason, advice)

    # ── the other ends ──────────────────────────────────────────────────────────────────

    def _failed(
        self, notes: tuple[str, ...], failed: Sequence[RankDone] | None = None
    ) -> BaseException:
        failed = self._outcome.failed if failed is None else failed
        world = self._pool.spec.world_size
        notes = (*self._deaths(), *notes)
        outcome = self._outcome
        lacked = of_missing_modules(failed, self._pool.spec, outcome.folder)
        notes = (*lacked, *of_a_collective_timeout(outcome, failed, self._pool.ranks), *notes)
        if outcome.on_reformed:
            old = of_an_old_group(failed, outcome.on_reformed, was_cut=outcome.was_cut)
            notes = (*old, *notes)
        only_values = self._pool.spec.only_values
        error = exception_of(failed, world, self._store, notes, only_values=only_values)
        if has_group(error) and (shell := get_ipython()) is not None:
            show_groups(shell)
        failures = failures_of(failed)
        headline, more = headline_of(failures, world)
        short = brief(failures, world)
        at = [FailedLine(f.ranks, f.where, f.line, f.type_name) for f in failures if f.where]
        self._display.change(failed_at=tuple(at))
        self._display.end("failed", headline, short=short, error_notes=(*more, *notes))
        # An exception with __slots__ has no room for them.
        with contextlib.suppress(AttributeError):
            error.results = self._finished()  # type: ignore[attr-defined]
            error.failed_on = (self._pool.pool_id, failed[0].rank)  # type: ignore[attr-defined]
        return error

    def _after_timeout(self, timeout: float, notes: tuple[str, ...]) -> BaseException:
        """The error for a run that took too long: what a rank raised before that, else `RunTimeout`."""
        halt = halt_of(self._outcome, self._where, self._pool.ranks)
        why = why_stopped(timeout, halt)
        before = [end for end in self._outcome.failed if end.rank not in halt.running]
        if before:
            return self._failed((why, *notes), before)
        if deaths(self._outcome).keys() - halt.running.keys():
            return self._died((why, *notes))
        done = self._outcome.done
        if at_end := [r for r in sorted(halt.running) if r in done and not done[r].failure]:
            word = "came to the cell's end when stopped; values are in the error's `.results`"
            notes = (f"{count_ranks(at_end)} {word}", *notes)
        stacks = {
            rank: threads(self._outcome.stacks.get(rank, "")) for rank in sorted(halt.running)
        }
        notes = (*self._deaths(), *notes)
        error = timed_out(timeout, halt, stacks, notes)
        words = f"Stopped after {spell_span(timeout)}"
        self._display.end("failed", words, short=words, error_notes=(why, *notes))
        error.results = self._finished()
        return error

    def _died(self, notes: tuple[str, ...]) -> BaseException:
        lost = deaths(self._outcome)
        words = {rank: self._display.last_words(rank) for rank in lost}
        then = crashed_waiting(self._outcome)
        error = died(lost, words, "\n".join(notes), self._places(), then)
        headline, *places = self._deaths()
        short = f"{count_ranks(lost)} died"
        self._display.end("failed", headline, short=short, error_notes=(*places, *notes))
        error.results = self._finished()
        return error

    def _deaths(self) -> list[str]:
        """How ranks ended of themselves and where, for errors that have another cause."""
        if not (lost := deaths(self._outcome)):
            return []
        return how_died(lost, self._places(), crashed_waiting(self._outcome))

    def _places(self) -> dict[int, str]:
        """Where ranks were in the user's code when they crashed, of those of which it is known."""
        lost = deaths(self._outcome).items()
        found = {rank: whereabouts(loss.stack, self._source) for rank, loss in lost}
        return {rank: at.place for rank, at in found.items() if at.place and not at.busy}

    def _interrupted(self, notes: tuple[str, ...]) -> KeyboardInterrupt:
        is_kept = self._goes_on and not self._outcome.began_anew
        kept = "; namespaces kept on all ranks" if is_kept else ""
        words = f"Interrupted on {count_ranks(self._outcome.ranks)}{kept}"
        notes = (*of_waits(self._outcome, self._pool.ranks, self._display.hang), *notes)
        self._display.end("interrupted", words, short="Interrupted", error_notes=notes)
        error = KeyboardInterrupt()
        show(error, [f"KeyboardInterrupt: {words}", *notes])
        return error

    def _run_notes(self) -> tuple[str, ...]:
        """Notes on the run, however it ended."""
        if self._outcome.went_well:
            return ()
        pool = self._pool
        notes = run_notes(
            self._outcome, pool.generation, self._where, pool.spec.framework, goes_on=self._goes_on
        )
        history = getattr(get_ipython(), "history_manager", None)
        again = self._outcome.was_reformed and "torch" not in self._outcome.regained
        if again and self._goes_on and history is not None:
            lines = wrapping_lines(history.input_hist_raw)
            notes += (f"to wrap again on the ranks: {'; '.join(lines)}",) if lines else ()
        return notes

    def _spilled(self) -> Iterator[str]:
        """A word on what found no room in memory."""
        names = [
            unit.shown
            for unit, _ in self._outcome.plan.sending
            if unit.bundle.is_stowed and self._store.on_disk(unit.bundle.digest)
        ]
        if names:
            yield f"no room in memory for {', '.join(names)}: put on disk, which is slower to read"
        if back := self._outcome.back_on_disk:
            yield f"no room in memory for what {count_ranks(back)} sent back: put on disk"
