"""What a finished run becomes: values bound in the notebook, the last picture, or an exception."""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from IPython.core.getipython import get_ipython

from skyward_nb.hangs.hang import spell_span
from skyward_nb.hangs.rank_locations import Source, whereabouts
from skyward_nb.hangs.stacks import threads
from skyward_nb.options.cell_options import CellOptions
from skyward_nb.pickling.diagnosis import kind_of
from skyward_nb.pickling.payload import map_all, unpack
from skyward_nb.pool.outcome import RunOutcome
from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.events import RankDone
from skyward_nb.protocol.message_parts import Failure, Packed, Rejected
from skyward_nb.reports.exception_groups import show_groups
from skyward_nb.reports.rank_failures import (
    died,
    exception_of,
    how_died,
    same_on_all,
    show,
    timed_out,
    why_stopped,
)
from skyward_nb.reports.results import RankResults
from skyward_nb.reports.run_notes import (
    deaths,
    halt_of,
    of_an_old_group,
    run_notes,
    whereabouts_of,
)
from skyward_nb.reports.run_profiles import told
from skyward_nb.reports.source_lines import sources
from skyward_nb.show.display import RunDisplay, spell_result
from skyward_nb.store.blobs import CorruptValue
from skyward_nb.words.errors import OptionError, PayloadError, PoolError, ResultTooLarge, SkyError
from skyward_nb.words.profile import CommProfile
from skyward_nb.words.ranks import count_ranks

T = TypeVar("T")
_MOST_TOLD = 120
_MOST_OTHERS = 3


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
        self._source = source or sources(get_ipython())
        self._where = whereabouts_of(outcome, self._source)

    def conclude(self, options: CellOptions, writes: frozenset[str]) -> object:
        """Bind what came back and return the value to show, or raise."""
        return self._conclude(options.timeout, lambda: self._bind(options, writes))

    def values(self, timeout: float | None, *, ends: bool = True) -> RankResults[Any]:
        """What a call returned on each rank, or raise; `ends`: nothing else is shown there."""
        return self._conclude(timeout, self._returned, ends=ends)

    def _conclude(
        self, timeout: float | None, value_of: Callable[[], T], *, ends: bool = True
    ) -> T:
        outcome = self._outcome
        notes = (*self._run_notes(), *outcome.plan.notes, *self._spilled())
        # Not with the rest, which an exception carries, too.
        self._display.note(*self._profiled())
        if outcome.interrupted and not self._all_ended_well():
            raise self._interrupted((*self._deaths(), *notes))
        if (rejected := self._rejected()) is not None:
            headline = rejected.message.partition("\n")[0]
            self._display.end("failed", headline, notes=notes)
            raise rejected
        if outcome.timed_out:
            raise self._after_timeout(timeout or 0.0, notes)
        if outcome.failed:
            raise self._failed(notes)
        if outcome.lost:
            raise self._died(notes)
        try:
            value = value_of()
        except PoolError as error:
            self._display.end("failed", error.message.partition("\n")[0], notes=notes)
            raise
        if (error := self._not_returned()) is not None:
            headline = str(error).partition("\n")[0]
            self._display.end("failed", headline, notes=notes)
            raise error
        if ends:
            ran = spell_result(outcome.ranks, self._pool.spec.world_size)
            self._display.end("finished", f"{ran} finished", notes=notes)
        return value

    def _rejected(self) -> PayloadError | None:
        """What was sent and could not be rebuilt on ranks; those bound nothing and ran nothing."""
        by_reason: dict[Rejected, list[int]] = {}
        for rank, end in sorted(self._outcome.done.items()):
            if end.rejected is not None and end.rejected.reason:
                by_reason.setdefault(end.rejected, []).append(rank)
        for rejected, ranks in by_reason.items():
            lack = f"cannot be rebuilt on {count_ranks(ranks)}"
            sending = (unit for unit, _ in self._outcome.plan.sending)
            unit = next((unit for unit in sending if unit.labels == rejected.labels), None)
            if unit is None:
                what, advice = "the call's arguments", _how_to_rebuild(rejected, is_call=True)
                return PayloadError(what, what, "what was packed", rejected.reason, advice, lack)
            type_name = kind_of(unit.values[0])
            advice = _how_to_rebuild(rejected)
            return PayloadError(unit.shown, unit.shown, type_name, rejected.reason, advice, lack)
        return None

    def _all_ended_well(self) -> bool:
        """Whether every rank came to the cell's end, as one does that handles an interrupt."""
        done = self._outcome.done.values()
        return not self._outcome.lost and all(
            end.failure is None and end.rejected is None for end in done
        )

    # ── the good end ────────────────────────────────────────────────────────────────────

    def _bind(self, options: CellOptions, writes: frozenset[str]) -> object:
        head_only = options.gather == "head"
        done = self._outcome.done
        ledger = self._pool.ledger
        for name in options.pull:
            target = options.target or name
            each = {rank: end.pulled[name] for rank, end in done.items() if name in end.pulled}
            if each:
                value = self._gather(each, name)
                if not value:
                    continue
                self._user_ns[target] = value.head if head_only else value
                if target == name:
                    ledger.bound_here(name, self._user_ns[name], each)
        packed = {rank: end.value for rank, end in done.items() if end.value is not None}
        if not packed:
            return None
        results = self._gather(packed, "the run's value")
        if not results:
            return None
        value = results.head if head_only else results
        if out := options.out:
            self._user_ns[out] = value
            if out in writes:
                ledger.bound_here(out, value, packed)
        nothing = all(each is None for each in results)
        return None if nothing else value

    def _returned(self) -> RankResults[Any]:
        done = self._outcome.done
        return self._gather({r: end.value for r, end in done.items() if end.value}, "the value")

    def _gather(self, packed: Mapping[int, Packed], name: str) -> RankResults[Any]:
        """The values that can be rebuilt here; of the others is told in the end."""
        nodes = {info.rank: info.node for info in self._pool.infos}
        values: dict[int, Any] = {}
        try:
            self._pool.sending.bring(packed, self._display.watch)
        except OSError as error:
            reason = f"it could not be brought: {error.strerror or error}"
            self._broken[name, reason] = list(packed)
            return RankResults(values, nodes)
        store_of = self._pool.context.stores.of
        mapped = map_all((each, store_of((rank,))) for rank, each in packed.items())
        for rank, each in packed.items():
            try:
                own = store_of((rank,))
                values[rank] = unpack(each, own, mapped=mapped.pop(each.digest, None))
            except Exception as error:  # noqa: BLE001 - rebuilding runs a user's code
                reason = f"{type(error).__name__}: {error}"
                self._broken.setdefault((name, reason), []).append(rank)
        return RankResults(values, nodes)

    def _finished(self) -> RankResults[Any]:
        """Values of the ranks that came to the end of a run that failed, as far as they can be had."""
        done = self._outcome.done
        try:
            return self._gather({r: end.value for r, end in done.items() if end.value}, "a value")
        except PoolError:  # the failure itself is what is told
            return RankResults({}, {})

    def _not_returned(self) -> SkyError | None:
        """What was asked for and did not come back; everything else is bound."""
        lacking: dict[str, list[int]] = {}
        for rank, end in sorted(self._outcome.done.items()):
            for bad in end.unsendable:
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
            for name in end.missing:
                lacking.setdefault(name, []).append(rank)
        for (name, reason), ranks in self._broken.items():
            advice = "The cell ran, and its names are on the ranks: bring what can be rebuilt here."
            return PayloadError(
                name,
                name,
                f"of {count_ranks(ranks)}",
                reason,
                advice,
                "cannot be rebuilt in the notebook",
            )
        for name, ranks in lacking.items():
            return OptionError("pull", f"pull={name}: no such name on {count_ranks(ranks)}")
        return None

    # ── the other ends ──────────────────────────────────────────────────────────────────

    def _failed(
        self, notes: tuple[str, ...], failed: Sequence[RankDone] | None = None
    ) -> BaseException:
        failed = self._outcome.failed if failed is None else failed
        world = self._pool.spec.world_size
        notes = (*self._deaths(), *notes)
        outcome = self._outcome
        if outcome.on_reformed:
            old = of_an_old_group(failed, outcome.on_reformed, was_cut=outcome.was_cut)
            notes = (*old, *notes)
        error = exception_of(failed, world, self._store, notes)
        if isinstance(error, BaseExceptionGroup) and (shell := get_ipython()) is not None:
            show_groups(shell)
        headline, told = _tell(failed, world)
        self._display.end("failed", headline, notes=(*told, *notes))
        # An exception with __slots__ has no room for them.
        with contextlib.suppress(AttributeError):
            error.results = self._finished()  # type: ignore[attr-defined]
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
        self._display.end("failed", f"Stopped after {spell_span(timeout)}", notes=(why, *notes))
        error.results = self._finished()
        return error

    def _died(self, notes: tuple[str, ...]) -> BaseException:
        lost = deaths(self._outcome)
        words = {rank: self._display.last_words(rank) for rank in lost}
        error = died(lost, words, "\n".join(notes), self._places())
        headline, *places = self._deaths()
        self._display.end("failed", headline, notes=(*places, *notes))
        error.results = self._finished()
        return error

    def _deaths(self) -> list[str]:
        """How ranks ended of themselves and where, for what is not raised for that."""
        return how_died(deaths(self._outcome), self._places())

    def _places(self) -> dict[int, str]:
        """Where ranks were in the user's code when they crashed, of those of which it is known."""
        lost = deaths(self._outcome).items()
        found = {rank: whereabouts(loss.stack, self._source) for rank, loss in lost}
        return {rank: at.place for rank, at in found.items() if at.place and not at.busy}

    def _interrupted(self, notes: tuple[str, ...]) -> KeyboardInterrupt:
        is_kept = self._goes_on and not self._outcome.began_anew
        kept = "; namespaces kept on all ranks" if is_kept else ""
        words = f"Interrupted on {count_ranks(self._outcome.ranks)}{kept}"
        self._display.end("interrupted", words, notes=notes)
        error = KeyboardInterrupt()
        show(error, [f"KeyboardInterrupt: {words}", *notes])
        return error

    def _run_notes(self) -> tuple[str, ...]:
        """What else there is to say of the run, whatever became of it."""
        pool = self._pool
        return run_notes(
            self._outcome,
            pool.generation,
            self._where,
            pool.spec.framework,
            goes_on=self._goes_on,
        )

    def _profiled(self) -> Iterator[str]:
        """Words on how ranks communicated, whose traces are written."""
        found: dict[int, CommProfile] = {}
        for rank, end in sorted(self._outcome.done.items()):
            if end.profile is not None:
                try:
                    found[rank] = unpack(end.profile, self._store)
                except (CorruptValue, OSError) as error:
                    found[rank] = CommProfile(trouble=str(error))
        if found:
            number, _, run = self._display.view.run.rpartition("/")
            yield from told(found, f"{number}-run{run}", Path.cwd())

    def _spilled(self) -> Iterator[str]:
        """A word on what found no room in memory."""
        names = [
            unit.shown
            for unit, _ in self._outcome.plan.sending
            if unit.bundle.is_stowed and self._store.on_disk(unit.bundle.digest)
        ]
        if names:
            yield f"no room in memory for {', '.join(names)}: put on disk, which is slower to read"
        back = [
            rank
            for rank, end in sorted(self._outcome.done.items())
            if any(each and each.on_disk for each in (end.value, *end.pulled.values()))
        ]
        if back:
            yield f"no room in memory for what {count_ranks(back)} sent back: put on disk"


def _tell(failed: Sequence[RankDone], world: int) -> tuple[str, tuple[str, ...]]:
    """A headline on what failed first, and notes: its place, and what else failed."""
    alike: dict[tuple[str, str], list[RankDone]] = {}
    for end in failed:
        kind = end.failure.type_name if end.failure else "error"
        message = _first_line(end.failure.message) if end.failure else ""
        alike.setdefault((kind, same_on_all(message)), []).append(end)
    told: list[str] = []
    places: list[str] = []
    for (kind, _), ends in alike.items():
        message = _first_line(ends[0].failure.message) if ends[0].failure else ""
        what = f"{kind} on {count_ranks(end.rank for end in ends)} of {world}"
        told.append(f"{what}: {message}" if message else what)
        places.append(_place(ends[0].failure))
    headline, *others = told
    notes = [places[0]] if places[0] else []
    rest = zip(others[:_MOST_OTHERS], places[1:], strict=False)
    notes += [f"{what} ({place})" if place else what for what, place in rest]
    if (more := len(others) - _MOST_OTHERS) > 0:
        notes.append(f"{more} more, each told below")
    return headline, tuple(notes)


def _first_line(text: str) -> str:
    """The first line that says something, cut where it is long."""
    return _cut(next((line for line in text.splitlines() if line.strip()), "").strip())


def _place(failure: Failure | None) -> str:
    if failure is None or failure.at is None:
        return ""
    at = failure.at
    return _cut(f"{at.where}, line {at.line}" + (f": {at.text.strip()}" if at.text else ""))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TOLD else f"{text[: _MOST_TOLD - 1].rstrip()}…"


def _how_to_rebuild(rejected: Rejected, *, is_call: bool = False) -> str:
    ran = "The call did not run." if is_call else "No name was bound, and the cell did not run."
    if "not those that were packed" in rejected.reason:
        return (
            "It changed while it was packed (does a thread still write to it?), or the store was "
            "damaged. Nothing was changed; the next run sends it again."
        )
    if rejected.gone:
        return f"{ran[:-1]}; the next run sends it whole."
    if rejected.missing:
        package = _distribution_of(rejected.missing)
        here = "this Python's own: pip install " if is_call else "the notebook's own: %pip install "
        return (
            f"The ranks lack the module {rejected.missing}: add it to their environment, "
            f"pip={package} (with provider=local that is {here}{package}). {ran}"
        )
    return (
        "It was packed here without complaint, so look at its class's __reduce__ or __setstate__, "
        f"or make it on the ranks. {ran}"
    )


def _distribution_of(module: str) -> str:
    """The name to install a module by: what brings it here, else its own."""
    top = module.partition(".")[0]
    found = importlib.metadata.packages_distributions().get(top)
    return found[0] if found else top
