"""Names of ranks that outlive them: kept when a machine is about to be reclaimed, and given to ranks that are begun anew.

Ranks write and read them by themselves (`runtime/checkpoint`); here it is decided when, and which. A cell that runs when
a notice comes goes on for half of the time that is left; then it is stopped, so that all ranks keep their names
in the same state: ranks of a training after the same step.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from skyward_nb.pickling.payload import unpack
from skyward_nb.pool.context import PoolContext
from skyward_nb.pool.lines import Watch
from skyward_nb.pool.outcome import ActiveRun, RunOutcome, RunRequest
from skyward_nb.pool.state import Incoming, SigInt
from skyward_nb.protocol.commands import KeepNames
from skyward_nb.protocol.events import NamesKept, Phase, RankLost
from skyward_nb.protocol.message_parts import RunCard
from skyward_nb.words.checkpoints import (
    CheckpointPart,
    RestoredPart,
    SeenCheckpoint,
    end_of_time,
    newest,
    notice_key,
    spell_contents,
    spell_list,
    spell_time,
    time_before_stop,
)
from skyward_nb.words.controls import spelt
from skyward_nb.words.decoding import from_json
from skyward_nb.words.errors import PoolError
from skyward_nb.words.ranks import count_ranks

Ask = Callable[[RunRequest], RunOutcome]
"""Runs a request to its end."""
_KEEP_LIMIT = 60.0
"""Seconds that ranks may take to keep their names where a notice does not say when their machine ends."""
_INTERRUPTED = "interrupted"
_AT_LEAST = 10.0
"""Seconds that they have in any case: the clock here may be another one than the machine's."""


class Resuming:
    """Knows whether ranks of a pool are to have names of a checkpoint, and whether they keep theirs."""

    def __init__(self, context: PoolContext) -> None:
        self._context = context
        self.is_due: bool = False
        """Whether ranks were begun anew, and have no names of a checkpoint yet."""
        self._due: dict[str, float] = {}
        """When a cell is stopped since a machine ends, by machine."""
        self.may_have_names: bool = False
        """Whether it is not known here that these ranks have none."""
        self.last_work: int = 0
        """The last run that may have changed names."""
        self._kept = 0, 0
        """The generation whose ranks have kept their names, and after which of such runs."""
        self._kept_words = ""
        self._told: list[str] = []

    def begun_anew(self, *, resumes: bool) -> None:
        """Note that ranks were begun anew, and whether they go on from a checkpoint."""
        self.is_due, self.may_have_names = resumes and bool(self._context.spec.checkpoint), False

    def attached(self) -> None:
        """Note that the client before may have ended after it began ranks anew, and before they had their names."""
        since, state = self._context.generations.names_since, self._context.state
        self.begun_anew(resumes=since < state.generation)
        self.may_have_names = True

    def told_once(self) -> tuple[str, ...]:
        """Where ranks go on from, or where their names were kept, in words; each once."""
        told, self._told = self._told, []
        return tuple(map(spelt, told))  # names and reasons are a machine's

    def tell_later(self, words: tuple[str, ...]) -> None:
        """Tell these with the next run that a person sees."""
        self._told += words

    # ── kept ────────────────────────────────────────────────────────────────────────────

    def _ends(self) -> dict[str, float | None]:
        """The machines that are about to be reclaimed, or are, with their ends; none where ranks have no names yet."""
        if self.is_due:
            return {}
        return {
            link.machine: end_of_time(link.noticed.at)
            for link in self._context.lines.links
            if link.noticed is not None
        }

    @property
    def is_to_keep(self) -> bool:
        """Whether a machine is about to be reclaimed, and ranks have not kept their names since the last run."""
        if not self._context.spec.checkpoint:
            return False
        is_kept = self._kept == (self._context.state.generation, self.last_work)
        return not is_kept and bool(self._ends())

    def look(self, run: ActiveRun) -> None:
        """Have a cell stop where a machine of the pool is about to be reclaimed, and half of the time is over.

        Cells that are run after that are not stopped.
        """
        if not self._context.spec.checkpoint:
            return
        is_ours = run.state.is_call or not run.is_work
        was_stopped = self._kept[0] == self._context.state.generation
        if is_ours or was_stopped or run.state.is_stopping or not (ends := self._ends()):
            return
        now = time.time()
        for machine, end in ends.items():
            due = self._due.setdefault(machine, now + time_before_stop(now, end))
            if now >= due:
                with self._context.lock:
                    run.state.end_before_reclaim(self._context.run_clock.now())
                return

    def was_stopped_there(self, run: ActiveRun) -> bool:
        """Whether the agent of a machine that is about to be reclaimed stopped a run that went on without a client."""
        if not self.is_to_keep:
            return False
        state = run.state
        asked = state.interrupts or state.timed_out or state.failed or state.lost
        return not asked and any(end.interrupted for end in state.done.values())

    def keep(self, watch: Watch) -> bool:
        """Have all ranks that live keep their names where a machine is about to be reclaimed; no run goes on.

        Returns whether a person has interrupted that.
        Those of that machine do so by themselves as soon as they are in no run, as nobody may listen then.
        """
        context, state = self._context, self._context.state
        if not self.is_to_keep:
            return False
        ends = self._ends()
        known = [end for end in ends.values() if end is not None]
        now = time.time()
        until = max(min(known, default=now + _KEEP_LIMIT), now + _AT_LEAST)
        run = self._run_of_notice()
        key = notice_key(context.pool_id, state.generation, run)
        watch(Phase("keeping the names of all ranks"))
        gone = {*state.ended_ranks, *state.losses}
        asked = tuple(sorted(set(state.ranks) - gone))
        if gone:
            until = now + _KEEP_LIMIT  # that machine is gone, and the others stay
        context.lines.send(KeepNames(key, asked, run, until))
        parts, why, was_interrupted = self._answers(key, asked, until, watch)
        watch(Phase(""))
        self._kept = state.generation, self.last_work
        are_names = any(part.names or part.states for part in parts)
        if why or (are_names and not gone):  # else what they go on from is told
            self._told = [each for each in self._told if each != self._kept_words]
            self._kept_words = _kept_words(parts, why)
            self._told.append(self._kept_words)
        return was_interrupted

    def _run_of_notice(self) -> int:
        """The run by which ranks of a machine that is reclaimed name what they keep, until another cell has changed it.

        The machine counts the runs that it was sent, questions to its ranks among them.
        """
        state = self._context.state
        noticed = [
            link.noticed.run for link in self._context.lines.links if link.noticed is not None
        ]
        is_first = self._kept[0] != state.generation
        return max(
            (run for run in noticed if is_first and run >= self.last_work), default=state.last_run
        )

    def _answers(
        self, key: str, asked: tuple[int, ...], until: float, watch: Watch
    ) -> tuple[list[CheckpointPart], dict[int, str], bool]:
        """What these ranks have kept, of the others why they have not, and whether a person has interrupted that."""
        parts: dict[int, CheckpointPart] = {}
        why: dict[int, str] = {}
        others: list[Incoming] = []
        late = "it did not answer in time"
        limit = time.monotonic() + max(0.0, until - time.time())
        for event in self._context.lines.pump(lambda _: watch(None), limit, interrupts=True):
            if isinstance(event, SigInt):
                late = _INTERRUPTED
                break
            if isinstance(event, NamesKept) and event.key == key:
                if event.part is not None:
                    parts[event.rank] = event.part
                else:
                    why[event.rank] = event.why
            elif event is not None:
                others.append(event)
                if isinstance(event, RankLost):
                    why[event.rank] = event.how
            if {*parts, *why} >= {*asked}:
                break
        self._context.lines.put_back(others)
        lacking = {rank: why.get(rank, late) for rank in asked if rank not in parts}
        return list(parts.values()), lacking, late is _INTERRUPTED

    def probe(self, ask: Ask) -> None:
        """Tell where the ranks of a new pool cannot write to the place, or see different ones; raises if the pool ends."""
        spec, unseen = self._context.spec, dict[int, list[int]]()
        if not spec.checkpoint:
            return
        words = f"names cannot be kept in {spec.checkpoints}: "
        try:
            try:
                self._asked(ask, "probe()", words=words)
                for rank, answer in self._asked(ask, "probed()").items():
                    unseen[rank] = from_json(answer, list[int])
            except PoolError:
                with contextlib.suppress(PoolError):  # what was first wrong is told
                    self._asked(ask, "unprobed()")
                raise
            self._asked(ask, "unprobed()")
        except PoolError as error:
            if self._context.state.has_ended:
                raise
            self._told.append(error.message)
        if missing := [(rank, ranks) for rank, ranks in unseen.items() if ranks]:
            rank, ranks = missing[0]
            self._told.append(
                f"{words}it is not one place for all machines: rank {rank} does not see what {count_ranks(ranks)} wrote"
            )

    # ── given ───────────────────────────────────────────────────────────────────────────

    def resume(self, ask: Ask) -> frozenset[str]:
        """Give ranks their names of the newest checkpoint; which names these are. Raises `PoolError`."""
        spec, ledger = self._context.spec, self._context.ledger
        since = self._context.generations.names_since
        if self.may_have_names and any(self._asked(ask, "has_names()").values()):
            self.is_due = False
            return frozenset()
        pool_id, others = self._context.pool_id, spec.resume and not since
        answers = self._asked(ask, "look()" if others else f"look({pool_id!r})")
        seen = [from_json(each, list[SeenCheckpoint]) for _, each in sorted(answers.items())]
        chosen = newest(seen, pool_id, since=since, or_others=others)
        if chosen is None:
            self.is_due = False
            self._told.append(
                f"{spec.checkpoints} {_nothing(seen, '' if others else pool_id)}: ranks begin without names"
            )
            return frozenset()
        self._check(chosen)
        run = max(part.run for part in chosen.parts)
        is_own = chosen.parts[0].pool_id == self._context.pool_id
        skipped = ledger.newer_than(run) if is_own else ()
        needed = frozenset(module for part in chosen.parts for module in part.needs)
        older = newest(
            [[each for each in found if each.key != chosen.key] for found in seen],
            pool_id, since=since, or_others=others,
        )  # fmt: skip
        advice = self._advice(chosen, older)
        answers = self._asked(ask, f"restore({chosen.key!r}, {skipped!r})", needed, advice)
        restored = {rank: from_json(each, RestoredPart) for rank, each in answers.items()}
        with self._context.lock:
            own = {name for part in restored.values() for name in part.own}
            ledger.resumed(
                {
                    name: [rank for rank, part in restored.items() if name in part.own]
                    for name in own
                }
            )
        self.is_due = False
        lacking = {each.name: each.why for part in restored.values() for each in part.lacking}
        words = spell_contents(chosen.parts, lacking)
        told = f"goes on from the checkpoint of {spell_time(chosen.at)} ({words})"
        if any(part.states for part in chosen.parts):
            told += "; make these again, and give them to sky.rejoin, a model before its optimizer"
        self._told.append(told)
        return frozenset(name for part in restored.values() for name in part.names)

    def _asked(
        self,
        ask: Ask,
        call: str,
        modules: frozenset[str] = frozenset(),
        advice: str = "",
        words: str = "",
    ) -> dict[int, str]:
        """The answers of all ranks, which get these modules of the project; raises `PoolError` with what one raised."""
        if not words:
            words = f"names of the checkpoint in {self._context.spec.checkpoints} cannot be had: "
            advice = advice or self._advice()
        context = self._context
        ranks, card = context.state.ranks, RunCard()
        question = RunRequest.question("checkpoint", call, ranks, card)
        outcome = ask(replace(question, modules=modules))
        spec = context.spec
        for end in sorted(outcome.failed, key=lambda each: each.rank):
            if end.failure is not None:
                raise PoolError(
                    spec.name,
                    f"{words}rank {end.rank}: {end.failure.type_name}: {end.failure.message}"
                    + (advice and f". {advice}"),
                )
        answers: dict[int, str] = {}
        for rank in ranks:
            end = outcome.done.get(rank)
            if end is None or end.value is None:
                if outcome.interrupted:
                    raise KeyboardInterrupt
                raise PoolError(spec.name, f"rank {rank} ended before it had its names: run again")
            store = context.stores.of((rank,))
            answers[rank] = str(unpack(end.value, store, only_values=spec.only_values))
        return answers

    def _advice(
        self, chosen: SeenCheckpoint | None = None, older: SeenCheckpoint | None = None
    ) -> str:
        """What to do where names cannot be had, and which these are."""
        how = "a pool without resume" if self._context.in_python else "`%sky restart`"
        if chosen is None:
            return f"{how[0].upper()}{how[1:]} begins without them"
        names = sorted({name for part in chosen.parts for name in (*part.names, *part.states)})
        named = f"It has {spell_list(names)}. " if names else ""
        if older is None:
            return f"{named}{how[0].upper()}{how[1:]} begins without them"
        place = self._context.spec.checkpoints
        return (
            f"{named}To go on from the one before, of {spell_time(older.at)}, remove {place}/{chosen.key} and run again; "
            f"{how} begins without names"
        )

    def _check(self, chosen: SeenCheckpoint) -> None:
        """Raise `PoolError` where these ranks cannot take it."""
        spec, part = self._context.spec, chosen.parts[0]
        at = spell_time(chosen.at)
        if part.world_size != spec.world_size:
            raise PoolError(
                spec.name,
                f"the checkpoint of {at} in {spec.checkpoints} has names of {count_ranks(range(part.world_size))}, but "
                f"this pool has {spec.world_size}: start one with as many. {self._advice(chosen)}",
            )
        here = f"{sys.version_info.major}.{sys.version_info.minor}"
        if part.python.rpartition(".")[0] != here:
            raise PoolError(
                spec.name,
                f"the checkpoint of {at} in {spec.checkpoints} was written by Python {part.python}, and code does not "
                f"travel to {here}. {self._advice(chosen)}",
            )


def _kept_words(parts: list[CheckpointPart], why: dict[int, str]) -> str:
    """What ranks have kept; where one has not, what holds then."""
    if not why:
        at = spell_time(max((part.at for part in parts), default=0.0))
        return f"names are kept in the checkpoint of {at} ({spell_contents(parts)})"
    lacking = [f"rank {rank}: {each}" for rank, each in sorted(why.items())]
    return f"names are not kept, the checkpoint before holds: {spell_list(lacking)}"


def _nothing(seen: list[list[SeenCheckpoint]], pool_id: str) -> str:
    """Why there is no checkpoint to go on from, of this pool if one is given."""
    seen = [
        [each for each in found if each.parts and pool_id in ("", each.pool_id)] for found in seen
    ]
    if not any(seen):
        return "has no checkpoint"
    together: dict[str, set[int]] = {}
    for each in (each for found in seen for each in found):
        together.setdefault(each.key, set()).update(part.rank for part in each.parts)
    sizes = {each.key: each.parts[0].world_size for found in seen for each in found}
    if any(len(ranks) == sizes[key] for key, ranks in together.items()):
        return "is not one folder for all machines, so that no rank sees a whole checkpoint"
    return "has no checkpoint of all ranks of this pool"
