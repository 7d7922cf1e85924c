"""The agent's record of runs: which ranks are in one, and which run no client has seen the end of."""

from __future__ import annotations

from skyward_nb.node.journal import Journal
from skyward_nb.protocol.commands import Run, RunSeen
from skyward_nb.protocol.events import RankDone, RunBegan
from skyward_nb.protocol.frames import event_frames, frame

_DONE = b"\xa8RankDone"
"""The tag of `RankDone` in msgpack."""


class RunRecord:
    """Notes the beginning and end of runs on this machine's ranks, and marks runs in the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._events = event_frames()
        self._running: dict[int, int] = {}
        """The run of each rank that is in one."""
        self.last: int = 0
        """The number of the last run."""
        self.last_work: int = 0
        """That of the last one with code of a person."""
        self.is_cell: bool = False
        """Whether that is a cell's, and no call's or script's."""
        self.unseen: RunBegan | None = None
        """The run that goes on, or whose end no client has seen."""

    @property
    def running(self) -> tuple[int, ...]:
        """Ranks that are in a run."""
        return tuple(sorted(self._running))

    def begin(self, run: Run, here: list[int]) -> None:
        """A run begins on ranks of which these are on this machine; clients that attach later read on from here."""
        self.last, self.is_cell = run.run, run.call is None
        if run.call is not None or ((run.body or run.last) and not run.aside):
            self.last_work = run.run
        self.unseen = RunBegan(run.run, run.generation, run.ranks, run.card, run.aside)
        self._running |= dict.fromkeys(here, run.run)
        self._journal.begin(run.run)
        # The client that began it knows: this is sent with the next event.
        self._journal.append(frame(self.unseen))

    def heard(self, frames: bytes) -> None:
        """Note the ranks that end a run in these frames, which are decoded only if they may say so."""
        if self._running and _DONE in frames:
            for event in self._events.feed(frames):
                if isinstance(event, RankDone) and self._running.get(event.rank) == event.run:
                    del self._running[event.rank]

    def lost(self, rank: int) -> None:
        """A rank is gone, and in no run any more."""
        self._running.pop(rank, None)

    def is_in(self, rank: int, run: int) -> bool:
        """Whether a rank is in this run."""
        return self._running.get(rank) == run

    def seen(self, command: RunSeen) -> None:
        """A client has seen a run's end."""
        if self.unseen is not None and self.unseen.run <= command.run:
            self.unseen = None
        self._journal.forget(command.offset)

    def start_for_newcomer(self) -> int:
        """The offset from which a new client reads the journal: the unseen run, or the end."""
        start = self._journal.start_of(self.unseen.run) if self.unseen else None
        return self._journal.end if start is None else start
