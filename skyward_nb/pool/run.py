"""A run that goes on: its state, and the events that the thread that waits for it has yet to read."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from skyward_nb.names.plan import Plan
from skyward_nb.pool.outcome import RunOutcome
from skyward_nb.pool.run_state import RunState
from skyward_nb.protocol.events import Event, RankLost


@dataclass(eq=False)
class ActiveRun:
    """A handle on a run that was begun; its pool's `finish` is to be called."""

    state: RunState
    plan: Plan = field(default_factory=Plan)
    namespace: Mapping[str, Any] = field(default_factory=dict[str, Any])
    lost_before: dict[int, RankLost] = field(default_factory=dict[int, RankLost])
    names_lost: list[str] = field(default_factory=list[str])
    limit: int | None = None
    in_store: frozenset[str] = frozenset()
    """Digests of the values in the store that it uses."""
    inbox: deque[Event] = field(default_factory=deque[Event])

    @property
    def number(self) -> int:
        """Its number in its pool."""
        return self.state.run

    @property
    def is_over(self) -> bool:
        """Whether it has ended on all ranks."""
        return self.state.over

    def outcome(self) -> RunOutcome:
        """Its end, without the consequences for its pool."""
        state = self.state
        return RunOutcome(
            ranks=state.ranks,
            plan=self.plan,
            done=state.done,
            lost=state.lost,
            failed=state.failed,
            killed=frozenset(state.killed),
            interrupted=state.interrupts > 0,
            lost_before=self.lost_before,
            names_lost=sorted(set(self.names_lost)),
            limit=self.limit,
            timed_out=state.timed_out,
            was_cut=state.was_cut,
            apart=state.is_call,
            in_store=self.in_store,
            waited_in=state.waited_in,
            stacks=state.stacks,
        )
