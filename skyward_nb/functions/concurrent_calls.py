"""Calls that go on side by side, for one thread: calls that have ended wait to be taken."""

from __future__ import annotations

import contextlib
from collections import deque
from concurrent.futures import CancelledError

from skyward_nb.functions.packed_calls import PackedCall
from skyward_nb.functions.rank_slots import RankSlots
from skyward_nb.pool.outcome import ActiveRun, RunOutcome
from skyward_nb.pool.pool import Pool
from skyward_nb.reports.execution import Execution
from skyward_nb.words.errors import PoolError

Ended = tuple[int, PackedCall, RunOutcome]


class ConcurrentCalls:
    """The calls of one `run_each`; `going` on, or `ended` and not told of yet, by their numbers."""

    def __init__(self, pool: Pool, slots: RankSlots, name: str) -> None:
        self.name = name
        self.ended: deque[Ended] = deque()
        self._pool = pool
        self._slots = slots
        self._going: dict[ActiveRun, tuple[int, PackedCall, Execution]] = {}
        self._is_cancelled = False

    @property
    def going(self) -> bool:
        """Whether some still run."""
        return bool(self._going)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that they are on."""
        return tuple(rank for run in self._going for rank in run.state.ranks)

    def begun(self, number: int, job: PackedCall, execution: Execution) -> None:
        """Take a call that has begun on ranks that were claimed for it."""
        self._going[execution.run] = number, job, execution
        self.owned()
        if self._is_cancelled:  # just before
            self._interrupt()

    def owned(self) -> None:
        """This thread alone goes on with them from now on."""
        self._slots.held_by_this_thread(self.ranks)

    def settle(self, _: float = 0) -> bool:
        """Wait until one has ended, whose rank is free then; whether there was one."""
        if not self._going:
            return False
        with self._pool.lines.interrupts(anew=False):
            self._pool.runs.await_any(
                self._going, lambda run, event: self._going[run][2].watch(event)
            )
            for run in [each for each in self._going if each.is_over]:
                number, job, execution = self._going.pop(run)
                self.ended.append((number, job, self._finish(execution)))
        return True

    def cancel(self) -> None:
        """Have no more of them run, and end those that do; from any thread."""
        self._is_cancelled = True
        self._slots.look()
        self._interrupt()

    def is_wanted(self) -> bool:
        """Whether nobody has cancelled them."""
        return not self._is_cancelled

    def check_wanted(self) -> None:
        """Raise CancelledError where somebody has."""
        if self._is_cancelled:
            raise CancelledError

    def _interrupt(self) -> None:
        for run in tuple(self._going):
            if not (run.is_over or run.state.is_interrupted):
                self._pool.interrupt(run.number)

    def stop(self) -> None:
        """End those that still run."""
        if not self._going:
            return  # an interrupt comes as it does
        with self._pool.lines.interrupts(anew=False):
            self._interrupt()
            while self._going:
                run, (_, _, execution) = self._going.popitem()
                with contextlib.suppress(PoolError):
                    self._finish(execution)
                if run.state.took_interrupt:  # nobody reads what came of it
                    self._pool.driver.owe_interrupt()

    def _finish(self, execution: Execution) -> RunOutcome:
        try:
            return execution.finish()
        finally:
            self._slots.release(execution.run.state.ranks)
