"""Interrupts that came too late for the call that the main thread waited for: a loop of calls stops all the same."""

from __future__ import annotations

import threading
from collections.abc import Collection

from skyward_nb.pool.outcome import ActiveRun
from skyward_nb.pool.pool import Pool


class LateInterrupts:
    """The interrupts of the main thread, from now on, that came while it waited for runs of a pool."""

    def __init__(self, pool: Pool) -> None:
        self._board = pool.lines.board
        self._before = self._board.interrupts_came

    def check(self, over: Collection[ActiveRun], going: Collection[ActiveRun] = ()) -> None:
        """Raise KeyboardInterrupt where there was one of which no rank has heard: of runs that are over, or go on."""
        came = self._board.interrupts_came
        if came == self._before or threading.current_thread() is not threading.main_thread():
            return
        if not any(run.state.interrupts for run in going):  # else its end tells of it
            self._before = came
            if not any(run.state.heard_interrupt for run in over):
                raise KeyboardInterrupt
