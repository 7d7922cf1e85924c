"""All decisions on a run: events and time in, commands out. No IO, and no clock.

state          event                     consequence
─────          ─────                     ───────────
running        a rank fails              after `settle`, the others are interrupted; with
                                         on_error=wait they go on
running        a rank's process ends     the same, and the generation is broken
running        `timeout` is over         ranks send their stacks, then they are interrupted
running        the person interrupts     all running ranks are interrupted; if they are all ranks of a
                                         training, they have `patience` to come to the same step
running        a machine is about to    the same, where ranks keep their names before it
               be reclaimed
running        an earlier client did     the same, without another interrupt
interrupting   a moment passes           running ranks cut their communication if they wait in a
                                         collective, and send their stacks
interrupting   one did cut it            all the others cut theirs, too: the group is torn
interrupting   `grace` is over           running ranks are killed; it begins when their machines
                                         confirm the interrupt, since events may be late
interrupting   the person, again         the same, at once
killing        a rank had ended in time  it is not killed, and its end counts
any            no rank is left running   the run is over
any            all have sharded results  they gather them, if all have the same parts and none has
                                         ended; else they get the reason why not
"""

from __future__ import annotations

from collections import Counter

from skyward_nb.protocol.commands import Command, CutCommunication, Gather, Inspect, Interrupt, Kill
from skyward_nb.protocol.events import (
    CommunicationCut,
    Hello,
    NotKilled,
    RankDone,
    RankLost,
    RunInterrupted,
    ShardedResult,
    Stack,
)
from skyward_nb.words.ranks import count_ranks

SETTLE = 0.25
CUT_AFTER = 0.3
PATIENCE = 2.0
"""Seconds that ranks of a training may take to stop after the same step."""
_LOOK = 5.0
"""Seconds in which ranks say where they are when their time is over: a guard, as agents answer for those that do not."""


class RunState:
    """One run on some `ranks` of a `generation`; `everyone` are all of the pool's. Times in seconds.

    A call goes on when a rank dies that it does not run on.
    """

    def __init__(
        self,
        run: int,
        ranks: tuple[int, ...],
        grace: float,
        *,
        everyone: tuple[int, ...] = (),
        generation: int = 0,
        is_call: bool = False,
        waits: bool = False,
        timeout_due: float | None = None,
        patience: float = 0.0,
    ) -> None:
        self.run: int = run
        self.ranks: tuple[int, ...] = ranks
        self.generation: int = generation
        self.is_call: bool = is_call
        self.is_in_front: bool = False
        """Whether the main thread waits for it: the person's interrupts are meant for such runs."""
        self.is_heard: bool = False
        """Whether all of it was heard."""
        self.pending_interrupts: int = 0
        """Interrupts of other threads that are not handled yet."""
        self.running: set[int] = set(ranks)
        self.done: dict[int, RankDone] = {}
        self.lost: dict[int, RankLost] = {}
        self.killed: set[int] = set()
        self.interrupts: int = 0
        self.took_interrupt: bool = False
        """Whether one of them is of the person who waits here for it, who was not told of it yet by an exception."""
        self.by_person: bool = False
        """Whether one ever was: the next one kills."""
        self.timed_out: bool = False
        self.reclaimed: bool = False
        """Whether it was stopped since a machine of its ranks is about to be reclaimed."""
        self.waited_in: dict[int, str] = {}
        self.stacks: dict[int, str] = {}
        self.was_cut: bool = False
        self.cutting: set[int] = set()
        """Ranks that have yet to answer `CutCommunication`."""
        self._answers_due: Counter[int] = Counter()
        """How many answers to that they owe; a rank answers each."""
        self._has_cut: set[int] = set()
        self._everyone = everyone or ranks
        self._waits = waits
        self._order: list[int] = []
        self._ended_late: dict[int, RankDone] = {}
        """The last words of ranks that were to be killed."""
        self._spread: dict[int, tuple[str, ...]] = {}
        self._asked: set[int] = set()
        self._stopping = False
        self._untold: set[int] = set()
        """Ranks whose machine has not confirmed the interrupt."""
        self._grace = grace
        self._patience = patience
        self._timeout_due = timeout_due
        self._wanted: list[float] = []
        """When ranks have asked their caller for values that they do not have yet."""
        self._stop_due: float | None = None
        self._cut_due: float | None = None
        self._looked_at: tuple[int, ...] = ()
        self._kill_due: float | None = None

    @property
    def is_interrupted(self) -> bool:
        """Whether a person has interrupted it, or will have once that is handled."""
        return self.interrupts > 0 or self.pending_interrupts > 0

    @property
    def has_heard(self) -> bool:
        """Whether a rank that is done has heard of an interrupt: what came of it is its own affair."""
        return any(end.heard or end.interrupted for end in self.done.values())

    @property
    def is_stopping(self) -> bool:
        """Whether its ranks are interrupted, or will be."""
        return self._stopping

    @property
    def broken(self) -> bool:
        """Whether a rank was lost, and the generation with it."""
        return bool(self.lost)

    @property
    def torn(self) -> bool:
        """Whether the ranks live, but their process group was cut, destroyed, or left in the midst of a pass, or is out of step.

        If all ranks came to the cell's end, their counts of collectives may differ; if one did not, ranks
        with different counts would join different collectives next.
        """
        ends = self.done.values()
        if any(end.lacks_group or end.left_open for end in ends):
            return True
        if self.was_cut or all(end.failure is None and end.rejected is None for end in ends):
            return self.was_cut
        steps: dict[str, set[int]] = {}
        for end in ends:
            for group, step in end.steps.items():
                steps.setdefault(group, set()).add(step)
        stepped = {end.optimizer_steps for end in ends}
        return len(stepped) > 1 or any(len(each) > 1 for each in steps.values())

    @property
    def failed(self) -> list[RankDone]:
        """Ranks that raised an error of their own, in order of time."""
        ends = (self.done[rank] for rank in self._order if rank in self.done)
        raised = [end for end in ends if end.failure and end.rank not in self._asked]
        if self.lost.keys() - self.killed:
            # An error in a collective only says that a peer is gone.
            return [end for end in raised if not end.waited_in]
        return raised

    def handle(self, event: object, now: float) -> list[Command]:
        """Handle an event; not a death, which may be of another generation: see `on_lost`."""
        match event:
            case RankDone():
                return self.on_done(event, now)
            case NotKilled():
                return self.on_not_killed(event, now)
            case ShardedResult():
                return self.on_sharded_result(event)
            case CommunicationCut():
                return self.on_communication_cut(event)
            case RunInterrupted():
                self.on_interrupted(event, now)
            case Stack():
                self.on_stack(event, now)
            case Hello():
                return self._look_again()
            case _:
                pass
        return []

    def on_done(self, event: RankDone, now: float) -> list[Command]:
        """Handle a rank's end of the run."""
        if event.run != self.run or event.rank not in self.running:
            return []
        if event.rank in self.killed:
            # Its death will come, or `NotKilled`.
            self._ended_late[event.rank] = event
            return []
        self.running.discard(event.rank)
        self.done[event.rank] = event
        self._order.append(event.rank)
        if self._stopping and (event.interrupted or event.rank in self.waited_in):
            # The cut of its communication caused its error.
            self._asked.add(event.rank)
        elif event.failure is not None or event.rejected is not None:
            self._trouble(now)
        if event.waited_in and event.failure is not None:
            self.waited_in[event.rank] = event.waited_in
        is_joined = self.was_cut and event.rank not in self._has_cut
        return [*self._gather(), *(self._cut((event.rank,), also_idle=True) if is_joined else ())]

    def on_not_killed(self, event: NotKilled, now: float) -> list[Command]:
        """Handle ranks that had ended before they were to be killed: their ends count."""
        if event.run != self.run:
            return []
        commands: list[Command] = []
        for rank in event.ranks:
            self.killed.discard(rank)
            if (late := self._ended_late.pop(rank, None)) is not None:
                commands += self.on_done(late, now)
        return commands

    def on_sharded_result(self, event: ShardedResult) -> list[Command]:
        """Handle a result that is sharded over ranks."""
        if event.run == self.run and event.rank in self.running:
            self._spread[event.rank] = event.parts
        return self._gather()

    def _gather(self) -> list[Command]:
        """Have ranks gather a result when all wait for that, or give them the reason why not."""
        waiting = tuple(sorted(self._spread.keys() & self.running))
        ended = {*self.done, *self.lost} - self._spread.keys()
        why = ""
        if waiting and ended:
            why = f"{count_ranks(ended)} sent home nothing of it"
        elif not waiting or self.running - self._spread.keys():
            return []
        elif len({self._spread[rank] for rank in waiting}) > 1:
            why = "ranks have different parts: " + "; ".join(
                f"rank {rank} has {', '.join(self._spread[rank])}" for rank in waiting
            )
        self._spread.clear()
        return [Gather(self.run, waiting, why)]

    def on_lost(self, event: RankLost, now: float) -> list[Command]:
        """Handle a rank's death."""
        if event.asked and event.rank in self.done:
            # It came to its end; the beginning of the next generation ended its process.
            return []
        # The first report has the cause; later ones do not.
        self.lost.setdefault(event.rank, event)
        self.cutting.discard(event.rank)
        if event.rank in self.running:
            self.running.discard(event.rank)
            self._order.append(event.rank)
        self._trouble(now)
        return self._gather()

    def on_communication_cut(self, event: CommunicationCut) -> list[Command]:
        """Handle the answer to `CutCommunication`."""
        if event.run != self.run:
            return []
        self._answers_due[event.rank] -= 1
        if self._answers_due[event.rank] <= 0:
            self.cutting.discard(event.rank)
        if event.waited_in:
            self.waited_in[event.rank] = event.waited_in
            if event.rank in self.done:
                # The cut ended its run before it answered.
                self._asked.add(event.rank)
        if event.cut:
            self._has_cut.add(event.rank)
        if not event.cut or self.was_cut:
            return []
        self.was_cut = True
        settled = {*self.running, *self.lost, *self._has_cut}
        others = tuple(rank for rank in self._everyone if rank not in settled)
        return self._cut(others, also_idle=True)

    def on_stack(self, event: Stack, now: float) -> None:
        """Handle the stacks of a rank that is to stop; after a timeout, the first ones count."""
        if not (self._stopping or self.timed_out):
            return  # somebody has a look at a run that goes on
        told = self.stacks.get(event.rank, "")
        # One that was killed meanwhile is asked in vain.
        if not told or (event.text and not self.timed_out):
            self.stacks[event.rank] = event.text
        if self.timed_out and not self._stopping and self.running <= self.stacks.keys():
            self._stop_due = now

    def _look_again(self) -> list[Command]:
        """Ask ranks anew where they are, as a line is open again: answers on the one before are lost with it."""
        silent = self.running - self.stacks.keys()
        if not silent or not self.timed_out or self._stopping:
            return []
        return [Inspect(tuple(sorted(silent)))]

    def interrupt(self, now: float) -> list[Command]:
        """Handle the person's interrupt."""
        self.interrupts += 1
        if self.interrupts > 1:
            self._untold.clear()
            return self._kill()
        return self._stop(now, by_person=True)

    def end_before_reclaim(self, now: float) -> None:
        """Have ranks stop, as after an interrupt, while there is time to keep their names."""
        if self.running and not self._stopping:
            self.reclaimed, self._stop_due = True, now

    def on_interrupted(self, event: RunInterrupted, now: float) -> None:
        """Handle the confirmation of an interrupt, by this client or by an earlier one, which this one continues."""
        if event.run != self.run:
            return
        if not self._stopping:
            self.interrupts += event.by_person
            self._begin_stopping(now)
            self._kill_due = now + self._grace + self._patience
        elif self._untold:
            self._untold.difference_update(event.ranks)
            self._kill_due = now + self._grace + self._patience

    def tick(self, now: float) -> list[Command]:
        """Handle the time."""
        if self._timeout_due is not None and now >= self._timeout_due and self._may_time_out():
            return self._time_out(now)
        if self._stop_due is not None and now >= self._stop_due:
            self._stop_due = None
            return self._stop(now)
        if self._kill_due is not None and now >= self._kill_due:
            return self._kill()
        if self._cut_due is not None and now >= self._cut_due:
            # Repeatedly: a rank may enter a collective after it has answered.
            self._cut_due = now + CUT_AFTER
            running = tuple(sorted(self.running - self.killed))
            looks = [] if running in ((), self._looked_at) else [Inspect(running)]
            self._looked_at = running
            return [*self._cut(tuple(rank for rank in running if rank not in self.cutting)), *looks]
        return []

    def next_due(self) -> float | None:
        """The time of the next action of `tick`."""
        timeout_due = None if self._wanted else self._timeout_due
        dues = (timeout_due, self._stop_due, self._cut_due, self._kill_due)
        times = [due for due in dues if due is not None]
        return min(times) if times and self.running else None

    def _cut(self, ranks: tuple[int, ...], *, also_idle: bool = False) -> list[Command]:
        self.cutting |= set(ranks)
        self._answers_due.update(ranks)
        return [CutCommunication(self.run, ranks, also_idle)] if ranks else []

    def asks(self, now: float) -> None:
        """A rank asks its caller for a value: while that takes its time, `timeout` does not go on."""
        self._wanted.append(now)

    def is_answered(self, now: float) -> None:
        """It has its value."""
        since = self._wanted.pop()
        if self._timeout_due is not None and not self._wanted:
            self._timeout_due += now - since

    def _may_time_out(self) -> bool:
        return bool(self.running) and not self._wanted

    def _time_out(self, now: float) -> list[Command]:
        self._timeout_due = None
        if self._stopping:
            return []
        self.timed_out = True
        self.stacks.clear()
        self._stop_due = now + _LOOK
        return [Inspect(tuple(sorted(self.running)))]

    def _trouble(self, now: float) -> None:
        if not self._stopping and self._stop_due is None and not self._waits:
            self._stop_due = now + SETTLE

    def _stop(self, now: float, *, by_person: bool = False) -> list[Command]:
        if not self.running or self._stopping:
            return []
        if self.running != set(self._everyone):
            self._patience = 0.0  # with one of them away, the others come to no step
        self._begin_stopping(now)
        self._untold = set(self.running)
        ranks = tuple(sorted(self.running))
        return [Interrupt(self.run, ranks, by_person, self._patience)]

    def _begin_stopping(self, now: float) -> None:
        self._stopping = True
        self._stop_due = self._timeout_due = None
        self._cut_due = now + min(CUT_AFTER, self._grace / 2)

    def _kill(self) -> list[Command]:
        """Kill the ranks whose interrupt was confirmed."""
        told = self.running - self._untold - self.killed
        self._kill_due = None
        if not self._untold:
            self._cut_due = None
        self.killed |= told
        return [Kill(tuple(sorted(told)), self.run)] if told else []
