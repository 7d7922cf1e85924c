"""A pool whose machines are played: they say in simulated time what real ones would, to a `PoolState`.

What is lost on a line is said again when that is open (`Lines`), so a line that is cut, and an agent
that is stopped, are words that come late. An agent or a forge that is gone ends the pool (`Closing`).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable

from faults.hands import FROZEN_FOR
from faults.matrix import Case, End, Fault, Moment
from faults.play import HOWS
from faults.stand import grace_of

from skyward_nb.pool.outcome import ActiveRun
from skyward_nb.pool.run_state import RunState
from skyward_nb.pool.state import Deliver, Ended, PoolPhase, PoolState, Remedy, Send, SigInt
from skyward_nb.protocol.commands import CutCommunication, Inspect, Interrupt, Kill
from skyward_nb.protocol.events import (
    CommunicationCut,
    NotKilled,
    RankDone,
    RankLost,
    RunInterrupted,
    Stack,
)
from skyward_nb.protocol.message_parts import Failure

AGENT, RANK = 0.002, 0.005
"""Seconds after which an agent, and a rank, answers."""
STRIKES = 1.0
"""When the fault happens: the moment has come long before."""
FAILURE = Failure(type_name="ValueError", message="on purpose", value=None, at=None, traceback=())
INTERRUPTED = Failure(type_name="KeyboardInterrupt", message="", value=None, at=None, traceback=())
POOL_GONE = (Fault.AGENT_KILLED, Fault.AGENT_KILLED_CHILD, Fault.FORGE_KILLED, Fault.CLIENT_GONE)
LATE = (Fault.AGENT_FROZEN, Fault.RESET, Fault.RESETS)
STUCK = (Fault.FROZEN, Fault.DEAF)


class Machines:
    """The ranks of a case, and the clock: `play` it, then ask the `state` and the `run`."""

    def __init__(self, case: Case, last_words_take: float = 0.0) -> None:
        self.case = case
        self._last_words_take = last_words_take
        """Seconds by which a slow line holds back what a rank says last."""
        self._has_ended: set[int] = set()
        self.now = 0.0
        self.ended: float | None = None
        """When the run was over."""
        self.state = PoolState(tuple(range(case.size)))
        self.state.begins_anew()
        self.state.generation = 1
        self.run = RunState(1, self.state.ranks, grace_of(case), generation=1)
        self._said: list[object] = []
        """Everything that was said of the run, for a client that comes later."""
        self._order = itertools.count()
        self._due: list[tuple[float, int, object]] = []
        self._dead: set[int] = set()
        self._stuck: set[int] = set()
        self._late_until = 0.0
        self._stops_slowly = case.moment is Moment.STOPPING

    # ── what happens ────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """All ranks are there, and run the cell."""
        self.state.has_begun(is_whole=True)
        if self.case.fault is Fault.TIMEOUT:
            self.run = RunState(
                1, self.state.ranks, grace_of(self.case), generation=1, timeout_due=STRIKES
            )
        self.run.is_in_front = True
        self.state.runs[1] = self.run
        if self._stops_slowly:
            self._later(0.1, SigInt())

    def strike(self) -> None:
        """Bring the fault about, and have the others come to their end where they do so by themselves."""
        case, victim = self.case, self.case.victim
        if case.fault in HOWS:
            self._dies(victim, HOWS[case.fault], STRIKES)
        elif case.fault is Fault.RAISES:
            self._dead.add(victim)
            self._later(STRIKES, self._raised(victim))
        elif case.fault in STUCK:
            self._stuck.add(victim)
        elif case.fault in LATE:
            self._late_until = STRIKES + FROZEN_FOR
        if (
            case.fault in (*STUCK, Fault.INTERRUPT, Fault.INTERRUPTS) and not self._stops_slowly
        ) or case.fault in (Fault.INTERRUPT, Fault.INTERRUPTS):
            self._later(STRIKES + 0.01, SigInt())
        if case.fault is Fault.INTERRUPTS:
            self._later(STRIKES + 0.06, SigInt())
        if case.end in (End.FINISHED, End.ATTACHED_WHOLE) or self._stops_slowly or self._is_home():
            for rank in self.state.ranks:
                if rank not in self._dead | self._stuck:
                    self._later(STRIKES + 0.06, self._done(rank))

    def play(self, until: float = 60.0) -> None:
        """Let time pass until the run is over."""
        while self.ended is None and self.now < until:
            due = self.state.next_due()
            said = self._due[0][0] if self._due else until
            if due is not None and due < said:
                self.now = max(due, self.now)
                # While nothing is heard no time passes for ranks.
                heard = None if STRIKES <= self.now < self._late_until else self.now
                if heard is None:
                    self.now = self._late_until
                self._do(self.state.handle(None, self.now, heard))
                continue
            if not self._due:
                return
            self.now, _, event = heapq.heappop(self._due)
            if STRIKES <= self.now < self._late_until and not isinstance(event, SigInt):
                self._later(self._late_until, event)
                continue
            self._hear(event)

    def attach(self) -> None:
        """The client is gone, another one takes its place, and is told all again."""
        was = self.state
        self.state = PoolState(was.ranks)
        self.state.generation = was.generation
        self.state.has_begun(is_whole=True)
        self.run = RunState(1, was.ranks, grace_of(self.case), generation=1)
        self.state.runs[1] = self.run
        for event in self._said:
            self._do(self.state.handle(event, self.now, None))

    # ── what follows ────────────────────────────────────────────────────────────────────

    def _hear(self, event: object) -> None:
        rank = getattr(event, "rank", None)
        if isinstance(event, RankDone) and (rank in self._dead and event.failure is not FAILURE):
            return  # it died before it could say so
        if isinstance(event, RankDone):
            self._dead.add(event.rank)
        if not isinstance(event, SigInt):
            self._said.append(event)
        self._do(self.state.handle(event, self.now, self.now))

    def _do(self, actions: list[object]) -> None:
        for action in actions:
            match action:
                case Send(command):
                    self._obey(command)
                case Deliver(number, _):
                    assert number in self.state.runs
                case Ended(number):
                    assert number == 1
                    self.ended = self.now

    def _obey(self, command: object) -> None:
        """What agents and ranks do when they are told something."""
        match command:
            case Interrupt(run, ranks, by_person):
                self._later(self.now + AGENT, RunInterrupted(run, by_person, ranks))
                if not self._stops_slowly:
                    self._stop(rank for rank in ranks if not self._waits(rank))
            case CutCommunication(run, ranks):
                waiting = [rank for rank in ranks if self._waits(rank)]
                for rank in set(ranks) - self._stuck:
                    waited = "all_reduce" if rank in waiting and rank not in self._dead else ""
                    was_cut = CommunicationCut(run, rank, waited, cut=bool(waited))
                    self._later(self.now + AGENT, was_cut)
                self._stop(waiting)
            case Kill(ranks, run):
                if ended := self._has_ended.intersection(ranks):
                    # In the order in which the machine says it.
                    self._later(self.now + self._last_words_take, NotKilled(run, tuple(ended)))
                for rank in set(ranks) - ended:
                    self._dies(rank, "killed by SIGKILL", self.now + RANK, asked=True)
            case Inspect(ranks):
                for rank in set(ranks) - self._dead - self._stuck:
                    self._later(self.now + AGENT, Stack(rank, "in the cell"))
            case _:
                raise AssertionError(command)

    def _stop(self, ranks: Iterable[int]) -> None:
        """Have those come to their end that can."""
        for rank in ranks:
            if rank not in self._dead | self._stuck:
                self._has_ended |= {rank} if self._last_words_take else set()
                late = self.now + RANK + self._last_words_take
                self._later(late, self._done(rank, interrupted=True))

    def _waits(self, rank: int) -> bool:
        """Whether it waits in a collective for one that does not come."""
        return self.case.moment is Moment.COLLECTIVE and rank != self.case.absent

    def _is_home(self) -> bool:
        """A value that cannot go home stops nobody."""
        return (self.case.fault, self.case.moment) == (Fault.RAISES, Moment.GATHERING)

    def _done(self, rank: int, *, interrupted: bool = False) -> RankDone:
        stops = interrupted or self._stops_slowly
        return RankDone(
            run=1, rank=rank, failure=INTERRUPTED if stops else None, interrupted=stops,
            waited_in="all_reduce" if stops and self._waits(rank) else "",
        )  # fmt: skip

    def _raised(self, rank: int) -> RankDone:
        return RankDone(run=1, rank=rank, failure=FAILURE)

    def _dies(self, rank: int, how: str, when: float, *, asked: bool = False) -> None:
        self._dead.add(rank)
        self._later(when, RankLost(1, rank, how, asked))

    def _later(self, when: float, event: object) -> None:
        heapq.heappush(self._due, (when, next(self._order), event))


def end_of(machines: Machines) -> End:
    """What a notebook would tell of it."""
    outcome = ActiveRun(machines.run).outcome()
    if outcome.timed_out:
        return End.TIMED_OUT
    is_well = not outcome.lost and not any(end.failure for end in outcome.done.values())
    if outcome.interrupted and not is_well:
        return End.INTERRUPTED
    if outcome.failed:
        return End.RAISED
    if outcome.lost.keys() - outcome.killed:
        return End.DIED
    assert is_well
    return End.FINISHED


def play(case: Case) -> tuple[End, Machines]:
    """Play a case; how it ended, and the machines as they are then."""
    machines = Machines(case)
    state = machines.state
    if case.moment in (Moment.STARTING, Moment.CLOSING) or case.fault in POOL_GONE:
        return _ended(case, machines), machines
    machines.begin()
    if case.moment is Moment.IDLE and case.fault is not Fault.FROZEN:
        return _idle(case, machines), machines
    machines.strike()
    if case.fault is Fault.CLIENT_BACK:
        machines.play(until=STRIKES)
        machines.attach()
    machines.play()
    assert machines.ended is not None, "it has no end"
    state = machines.state
    state.is_over(1)
    state.runs.clear()
    return End.ATTACHED_WHOLE if case.fault is Fault.CLIENT_BACK else end_of(machines), machines


def _idle(case: Case, machines: Machines) -> End:
    """Nothing runs: what is lost is told of by the next run, and nothing else matters."""
    state = machines.state
    state.runs.clear()
    if case.fault in HOWS:
        lost = RankLost(1, case.victim, HOWS[case.fault])
        assert state.handle(lost, 0.0, 0.0) == []
        assert state.losses == {case.victim: lost}
        assert state.phase is PoolPhase.BROKEN
        return End.DIED
    for event in (SigInt(), None, SigInt()):
        assert state.handle(event, 0.0, 0.0) == []
    assert state.is_ready
    return End.ATTACHED_WHOLE if case.fault is Fault.CLIENT_BACK else End.FINISHED


def _ended(case: Case, machines: Machines) -> End:
    """The pool is gone, or does not come up, or closes: nothing leads out of that."""
    state = machines.state
    if case.moment is not Moment.STARTING:
        machines.begin()
    if case.moment is Moment.STARTING and case.end is not End.POOL_GONE:
        state.has_begun(is_whole=case.end is End.FINISHED)
        assert state.is_ready == (case.end is End.FINISHED)
    state.becomes(PoolPhase.ENDED)
    actions = state.handle(RankLost(1, case.victim, "killed by SIGKILL"), 0.0, 0.0)
    assert not [each for each in actions if isinstance(each, Send)]
    state.has_begun(is_whole=True)
    state.begins_anew()
    assert state.phase is PoolPhase.ENDED
    return case.end


def restored(case: Case, machines: Machines) -> None:
    """What has to be done before the next run is known, and all ranks are there after it."""
    state = machines.state
    if state.has_ended:
        return
    before = state.phase
    if state.losses:
        assert state.remedy(is_lacking=False) is Remedy.LATER
    elif state.is_unsettled:
        assert before is PoolPhase.BROKEN
        remedy = state.remedy(is_lacking=False)
        assert (remedy is Remedy.BEGIN_ANEW) >= bool(machines.run.lost)
        assert remedy is not Remedy.LATER
        if case.keeps_all:
            assert remedy is not Remedy.BEGIN_ANEW
    else:
        assert state.is_ready
    state.begins_anew()
    state.has_begun(is_whole=True)
    assert state.is_ready
    assert not state.losses
    assert state.remedy(is_lacking=False) is Remedy.NOTHING
