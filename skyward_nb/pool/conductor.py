"""What to do while a run goes on: events and time in, commands out. No IO, no clock of its own.

state          event                     what follows
─────          ─────                     ────────────
running        a rank fails              after `settle`, the others are interrupted
running        a rank's process ends     the same, and the generation is broken
running        the person interrupts     all ranks still running are interrupted
interrupting   `grace` is over           ranks still running are killed
interrupting   the person, again         the same, at once
any            no rank is left running   the run is over
any            all that run said what    they gather it together, if it is the same on all ranks
               of theirs is spread       and none has ended; else they are told why not
"""

from __future__ import annotations

from skyward_nb.words.messages import Command, Gather, Interrupt, Kill, RankDone, RankLost, Spread
from skyward_nb.words.ranks import count_ranks

SETTLE = 0.25


class Conductor:
    """Follows one run over `ranks`; `grace` in seconds."""

    def __init__(self, run: int, ranks: tuple[int, ...], grace: float) -> None:
        self.run = run
        self.running = set(ranks)
        self.done: dict[int, RankDone] = {}
        self.lost: dict[int, RankLost] = {}
        self.killed: set[int] = set()
        self.interrupts = 0
        self._order: list[int] = []
        self._spread: dict[int, tuple[str, ...]] = {}
        self._asked: set[int] = set()
        self._stopping = False
        self._grace = grace
        self._stop_due: float | None = None
        self._kill_due: float | None = None

    @property
    def over(self) -> bool:
        """Whether no rank is running any more."""
        return not self.running

    @property
    def broken(self) -> bool:
        """Whether a rank was lost, and the generation with it."""
        return bool(self.lost)

    @property
    def failed(self) -> list[RankDone]:
        """Ranks that raised something of their own, first in time first."""
        ends = (self.done[rank] for rank in self._order if rank in self.done)
        return [end for end in ends if end.failure and end.rank not in self._asked]

    def finished(self, event: RankDone, now: float) -> list[Command]:
        """A rank said that it is done."""
        if event.run != self.run or event.rank not in self.running:
            return []
        self.running.discard(event.rank)
        self.done[event.rank] = event
        self._order.append(event.rank)
        if event.interrupted and self._stopping:
            self._asked.add(event.rank)
        elif event.failure is not None or event.rejected is not None:
            self._trouble(now)
        return self._gather()

    def spread(self, event: Spread) -> list[Command]:
        """What a rank sends home is spread over ranks."""
        if event.run == self.run and event.rank in self.running:
            self._spread[event.rank] = event.parts
        return self._gather()

    def _gather(self) -> list[Command]:
        """Have them gather when all are there, or say why that cannot be."""
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

    def died(self, event: RankLost, now: float) -> list[Command]:
        """A rank's process ended."""
        self.lost[event.rank] = event
        if event.rank in self.running:
            self.running.discard(event.rank)
            self._order.append(event.rank)
        self._trouble(now)
        return self._gather()

    def interrupt(self, now: float) -> list[Command]:
        """The person pressed the square button."""
        self.interrupts += 1
        if self.interrupts > 1:
            return self._kill()
        return self._stop(now)

    def tick(self, now: float) -> list[Command]:
        """Time has passed."""
        if self._stop_due is not None and now >= self._stop_due:
            self._stop_due = None
            return self._stop(now)
        if self._kill_due is not None and now >= self._kill_due:
            return self._kill()
        return []

    def next_due(self) -> float | None:
        """When `tick` has something to do next."""
        times = [due for due in (self._stop_due, self._kill_due) if due is not None]
        return min(times) if times and self.running else None

    def _trouble(self, now: float) -> None:
        if not self._stopping and self._stop_due is None:
            self._stop_due = now + SETTLE

    def _stop(self, now: float) -> list[Command]:
        if not self.running:
            return []
        self._stopping = True
        self._kill_due = now + self._grace
        return [Interrupt(self.run, tuple(sorted(self.running)))]

    def _kill(self) -> list[Command]:
        self._kill_due = None
        self.killed |= self.running
        return [Kill(tuple(sorted(self.running)))] if self.running else []
