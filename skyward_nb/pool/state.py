"""All decisions on a pool: events and the time go in, actions come out.

It has no socket, no thread and no clock: `Driver` feeds it and carries out its actions. What a run, new ranks and
the end of a machine ask for is decided here, too, and carried out by `Renewal`.

phase       meaning                                next
─────       ───────                                ────
STARTING    machines are got, agents start         a generation begins; an attached pool is READY or BROKEN
BEGINNING   ranks are forked anew                  all are ready: READY; else BROKEN
READY       all ranks live                         a rank is lost, a group is cut or out of step: BROKEN
BROKEN      ranks are lost, or their group         the group is formed again: READY; the next run, or
                                                   the end of this one, begins anew: BEGINNING
ENDED       closed, or left                        nothing
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from skyward_nb.pool.run_state import RunState
from skyward_nb.protocol.commands import Command
from skyward_nb.protocol.events import CommunicationCut, Event, Phase, RankLost
from skyward_nb.words.ranks import count_ranks
from skyward_nb.words.reclaimed_machine import ReclaimedMachine, spell_ended, spell_machines

STILL_MEANT = 1.0
"""Seconds after a run in which an interrupt may still be meant for it."""


class SigInt:
    """The person interrupted."""


Incoming = Event | SigInt


class PoolPhase(enum.Enum):
    """The phase of a pool."""

    STARTING = "starting"
    BEGINNING = "beginning"
    READY = "ready"
    BROKEN = "broken"
    ENDED = "ended"


_P = PoolPhase
TRANSITIONS: dict[PoolPhase, tuple[PoolPhase, ...]] = {
    _P.STARTING: (_P.BEGINNING, _P.READY, _P.BROKEN, _P.ENDED),
    _P.BEGINNING: (_P.READY, _P.BROKEN, _P.ENDED),
    _P.READY: (_P.BEGINNING, _P.BROKEN, _P.ENDED),
    _P.BROKEN: (_P.BEGINNING, _P.READY, _P.ENDED),
    _P.ENDED: (),
}


@dataclass(frozen=True)
class Send:
    """Send this to the machines that it concerns."""

    command: Command


@dataclass(frozen=True)
class Deliver:
    """Give this to the thread that waits for a run."""

    run: int
    event: Event


@dataclass(frozen=True)
class Ended:
    """The run has ended on all ranks."""

    run: int


Action = Send | Deliver | Ended


@dataclass(frozen=True)
class Replace:
    """Get other machines in place of these, before ranks are forked anew."""

    machines: tuple[ReclaimedMachine, ...]


@dataclass(frozen=True)
class Refuse:
    """Do not begin; the reason is for people."""

    why: str


@dataclass(frozen=True)
class Close:
    """End the pool, which is lost; the reason is for people."""

    why: str


class Remedy(enum.Enum):
    """The repair that a pool needs."""

    NOTHING = "nothing"
    LATER = "the next run begins anew, and tells why"
    REFORM = "the ranks form their group again"
    BEGIN_ANEW = "ranks are forked anew"


class PoolState:
    """The phase, the generation, the runs and the losses of a pool of `ranks`; times in seconds."""

    def __init__(self, ranks: tuple[int, ...]) -> None:
        self.ranks: tuple[int, ...] = ranks
        self.phase: PoolPhase = PoolPhase.STARTING
        self.generation: int = 0
        self.pids: dict[int, int] = {}
        """The process ids of the ranks that live."""
        self.last_run: int = 0
        self.runs: dict[int, RunState] = {}
        """Unfinished runs, by number."""
        self.is_interrupt_untaken: bool = False
        """Whether the person's last one is for a run that just comes to front: none was there to take it."""
        self.losses: dict[int, RankLost] = {}
        """Lost ranks that no run reports."""
        self.ended_machines: dict[tuple[int, ...], ReclaimedMachine] = {}
        """The machines that have ended and were not replaced yet, by their nodes."""
        self._unsettled: list[RunState] = []
        """Runs that left ranks lost or groups cut, and ended while others went on."""

    # ── phases ──────────────────────────────────────────────────────────────────────────

    @property
    def is_ready(self) -> bool:
        """Whether all ranks live, as far as is known."""
        return self.phase is PoolPhase.READY

    @property
    def has_ended(self) -> bool:
        """Whether the pool was closed or left."""
        return self.phase is PoolPhase.ENDED

    def becomes(self, phase: PoolPhase) -> None:
        """Change the phase; a pool that has ended stays so."""
        if phase is self.phase or self.has_ended:
            return
        assert phase in TRANSITIONS[self.phase], f"{self.phase.value} -> {phase.value}"
        self.phase = phase

    def begins_anew(self) -> None:
        """Note that all ranks will be forked anew, and forget the old ones."""
        self.becomes(PoolPhase.BEGINNING)
        self.losses.clear()
        self._unsettled.clear()

    def has_begun(self, *, is_whole: bool) -> None:
        """Note that the new ranks are ready, or not all of them."""
        self.becomes(PoolPhase.READY if is_whole else PoolPhase.BROKEN)

    # ── runs ────────────────────────────────────────────────────────────────────────────

    def has_room(self, ranks: Iterable[int], *, is_call: bool) -> bool:
        """Whether a run may begin on these ranks: a call beside others, anything else alone."""
        if not is_call or not self.is_ready:
            return not self.runs
        return not any(set(run.ranks) & set(ranks) for run in self.runs.values())

    def is_last(self, number: int) -> bool:
        """Whether no other run goes on, or is yet to be over."""
        return all(run.is_heard or run.run == number for run in self.runs.values())

    def is_over(self, number: int) -> None:
        """Note that all of a run was heard: repairs wait for the end of the last one."""
        run = self.runs[number]
        run.is_heard = True
        if run.broken or run.torn or run.cutting:
            if self.is_ready:
                self.becomes(PoolPhase.BROKEN)
            self._unsettled.append(run)

    def losses_of(self, run: RunState) -> list[RankLost]:
        """The known losses of a run that is followed from its middle."""
        return [
            replace(lost, generation=run.generation)
            for rank, lost in self.losses.items()
            if rank in run.ranks and (lost.generation == run.generation or rank in self.ended_ranks)
        ]

    def interrupt(self, number: int | None) -> None:
        """Have a run, or all, be interrupted when the next event is handled."""
        for run in self.runs.values():
            run.pending_interrupts += number in (None, run.run)

    def to_front(self, runs: Iterable[RunState], *, is_owed: bool) -> bool:
        """The main thread waits for these runs. New ones take what came before, if that `is_owed` still; whether there was any."""
        is_untaken, self.is_interrupt_untaken = self.is_interrupt_untaken and is_owed, False
        new = [run for run in runs if not run.is_in_front]
        for run in new:
            run.is_in_front = True
        return is_untaken and _have_taken(new)

    def leaves_interrupt(self, run: RunState) -> bool:
        """Whether a run that is over took an interrupt of which no rank of it has heard, and none goes on that took it, too."""
        taking = any(each.running and each.took_interrupt for each in self.runs.values())
        return run.took_interrupt and not (run.has_heard or taking)

    def is_interrupted_first(self, event: Incoming | None) -> bool:
        """Whether this event interrupts a run for the first time."""
        by_person = isinstance(event, SigInt)
        for run in self.runs.values():
            is_meant = run.pending_interrupts or (by_person and run.is_in_front)
            if is_meant and run.running and not run.interrupts:
                return True
        return False

    # ── events ──────────────────────────────────────────────────────────────────────────

    def handle(
        self, event: Incoming | None, now: float, heard_until: float | None = None
    ) -> list[Action]:
        """The actions that follow from an event, or from the time, for all present runs.

        Time passes to `heard_until`, when all events until then are heard: if this process was stopped, a
        rank that has ended in time must not seem late.
        """
        actions: list[Action] = []
        running = [run for run in self.runs.values() if run.running]
        if isinstance(event, SigInt):
            self.is_interrupt_untaken = not _have_taken([run for run in running if run.is_in_front])
        elif event is not None:
            actions += [Deliver(run, event) for run in self._concerned(event)]
        for run in running:
            commands = self._commands(run, event, now)
            while run.pending_interrupts:
                run.pending_interrupts -= 1
                commands += run.interrupt(now)
                if run.running:
                    text = f"interrupted, waiting for {count_ranks(run.running)} to stop"
                    actions.append(Deliver(run.run, Phase(text)))
            if heard_until is not None:
                commands += run.tick(heard_until)
            actions += map(Send, commands)
            if not run.running:
                actions.append(Ended(run.run))
        if not running and isinstance(event, RankLost) and event.generation == self.generation:
            self._miss(event)  # runs that are over do not need it
        if self._unsettled and isinstance(event, CommunicationCut):
            actions += (
                Send(each) for run in self._unsettled for each in run.on_communication_cut(event)
            )
        return actions

    def next_due(self) -> float | None:
        """The time of the next action without an event."""
        first: float | None = None
        for run in self.runs.values():
            due = run.next_due()
            if due is not None and (first is None or due < first):
                first = due
        return first

    def _concerned(self, event: Event) -> Iterable[int]:
        """The run of an event, else the runs on its rank, else all; for a run that is over, any one."""
        if not self.runs:
            return ()
        number, rank = getattr(event, "run", 0), getattr(event, "rank", None)
        if number in self.runs:
            return (number,)
        in_front = [run.run for run in self.runs.values() if run.is_in_front]
        one = (in_front or list(self.runs))[:1]
        if number:
            return one
        if rank is None or len(self.runs) == 1:
            return tuple(self.runs)
        return [run.run for run in self.runs.values() if rank in run.ranks] or one

    def _commands(self, run: RunState, event: Incoming | None, now: float) -> list[Command]:
        if not isinstance(event, RankLost):
            return run.handle(event, now)
        if event.generation == run.generation:
            if run.is_call and event.rank not in run.ranks:
                self._miss(event)
                return []
            return run.on_lost(event, now)
        if event.generation == self.generation:
            self._miss(event)
            if event.rank in run.ranks and event.rank in self.ended_ranks:
                return run.on_lost(replace(event, generation=run.generation), now)
            return []
        return run.handle(event, now)

    def _miss(self, event: RankLost) -> None:
        """Note the loss of a rank in no run, or in a run that does not use it."""
        if self.is_ready:
            self.becomes(PoolPhase.BROKEN)
        self.pids.pop(event.rank, None)
        if not any(event.rank in {*run.running, *run.lost} for run in self.runs.values()):
            self.losses[event.rank] = event

    # ── machines ────────────────────────────────────────────────────────────────────────

    @property
    def ended_ranks(self) -> frozenset[int]:
        """The ranks of machines that have ended, of any generation: no more events come from them."""
        return frozenset(rank for each in self.ended_machines.values() for rank in each.ranks)

    def lacking(self, noticed: Iterable[ReclaimedMachine]) -> list[ReclaimedMachine]:
        """The machines to replace before the next run: those whose end is `noticed`, and those that have ended."""
        return list(({each.nodes: each for each in noticed} | self.ended_machines).values())

    def losses_with(self, machines: Iterable[ReclaimedMachine]) -> dict[int, RankLost]:
        """The ranks that are lost with these machines, with reasons."""
        return {
            rank: RankLost(self.generation, rank, f"ended with {each.name} ({each.why})")
            for each in machines
            for rank in each.ranks
        }

    def machine_ended(self, machine: ReclaimedMachine, over: str) -> dict[int, RankLost] | Close:
        """The ranks that are lost with a machine, in whose place the next run gets another one.

        The pool ends where ranks never were ready, or if `over` says why no more may be rented.
        """
        if over or not self.generation:
            no_other = f", and no other is rented: {over}" if over else ""
            return Close(f"{spell_ended(machine.name, machine.why)}{no_other}")
        why = machine.why or "its machine has ended"
        self.ended_machines[machine.nodes] = known = replace(machine, why=why)
        return self.losses_with([known])

    def has_replaced(self, nodes: tuple[int, ...]) -> None:
        """Note that another machine has these nodes."""
        self.ended_machines.pop(nodes, None)

    def before_run(self, noticed: Iterable[ReclaimedMachine], *, is_work: bool) -> Remedy | Refuse:
        """What a run needs first; only one that `is_work` has machines replaced, and ranks forked anew."""
        lacking = self.lacking(noticed)
        if is_work:
            return Remedy.BEGIN_ANEW if lacking else Remedy.NOTHING
        if not self.ended_machines:
            return Remedy.NOTHING  # machines whose end is only announced still answer
        return Refuse(
            f"is not whole: {spell_machines(lacking)}. The next run gets another machine in its place; "
            "what ranks had is lost."
        )

    def before_generation(
        self, noticed: Iterable[ReclaimedMachine], over: str
    ) -> Replace | Refuse | None:
        """What new ranks need first; `over`: why no more may be rented, or ""."""
        lacking = self.lacking(noticed)
        if not lacking:
            return None
        if over:
            return Refuse(f"{spell_machines(lacking)} is not replaced: {over}")
        return Replace(tuple(lacking))

    # ── repairs ─────────────────────────────────────────────────────────────────────────

    @property
    def is_unsettled(self) -> bool:
        """Whether runs left ranks lost, or groups cut or out of step."""
        return bool(self._unsettled)

    @property
    def awaits_cuts(self) -> frozenset[int]:
        """The ranks that have yet to answer if they cut their communication.

        A rank may end its run before it answers; a late cut would hit the next run.
        """
        if self.losses or any(run.broken for run in self._unsettled):
            return frozenset()  # all begin anew in any case
        return frozenset[int]().union(*(run.cutting for run in self._unsettled))

    def lost_beside(self) -> frozenset[int]:
        """The ranks that were lost in runs that are not settled."""
        return frozenset[int]().union(*(run.lost for run in self._unsettled))

    def remedy(self, *, is_lacking: bool) -> Remedy:
        """The repair that is due; `is_lacking`: machines will be replaced before the next run."""
        if self.losses or is_lacking:
            return Remedy.LATER
        unsettled, self._unsettled = self._unsettled, []
        if any(run.broken or run.cutting for run in unsettled):
            return Remedy.BEGIN_ANEW  # a rank that has not answered may cut at any time
        return Remedy.REFORM if any(run.torn for run in unsettled) else Remedy.NOTHING


def _have_taken(runs: list[RunState]) -> bool:
    """Have runs take an interrupt of the person, which they handle next, unless a call is just stopped; whether there are any."""
    for run in runs:
        run.pending_interrupts += run.by_person or not (run.is_call and run.is_interrupted)
        run.took_interrupt = run.by_person = True
    return bool(runs)
