"""What to do while a run goes on: events and time in, commands out. No IO, no clock of its own.

state          event                     what follows
─────          ─────                     ────────────
running        a rank fails              after `settle`, the others are interrupted
running        a rank's process ends     the same, and the generation is broken
running        the person interrupts     all ranks still running are interrupted
interrupting   `grace` is over           ranks still running are killed
interrupting   the person, again         the same, at once
any            no rank is left running   the run is over
"""

from __future__ import annotations

from skyward_nb.words.messages import Command, Interrupt, Kill, RankDone, RankLost

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
        return []

    def died(self, event: RankLost, now: float) -> list[Command]:
        """A rank's process ended."""
        self.lost[event.rank] = event
        if event.rank in self.running:
            self.running.discard(event.rank)
            self._order.append(event.rank)
        self._trouble(now)
        return []

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
