"""Events for the agent's client: they go through the journal, at the pace of the client's connection."""

from __future__ import annotations

from collections.abc import Callable

from skyward_nb.node.client_connection import ClientConnection
from skyward_nb.node.journal import Journal
from skyward_nb.node.run_record import RunRecord
from skyward_nb.protocol.events import Event, Leaving, Telemetry
from skyward_nb.protocol.frames import frame

_MOST_BEHIND = 1 << 20
"""Bytes that an attached client may be behind before ranks wait for it."""


class Outbox:
    """Appends events to the journal, and has ranks wait while the client is too far behind."""

    def __init__(self, journal: Journal, runs: RunRecord) -> None:
        self._journal = journal
        self._runs = runs
        self._held = False
        self.line: ClientConnection | None = None
        """The client's connection, while there is one."""
        self.hold_ranks: Callable[[bool], None] = lambda _held: None
        """Has ranks wait with their output, or go on."""

    def tell(self, event: Event) -> None:
        """Send the client an event, now or when it attaches."""
        self.append(frame(event))

    def append(self, frames: bytes) -> None:
        """Send the client the events in these frames, without decoding them."""
        self._journal.append(frames)
        line = self.line
        if line is not None:
            line.nudge()
            is_behind = self._journal.end - line.cursor > _MOST_BEHIND
            run = self._runs.unseen
            if is_behind and not self._held and not (run and run.card.detached):
                self._hold(True)

    def leave(self, event: Leaving) -> None:
        """Tell the client why the agent ends: one that is far behind is told before what it has not heard, or never would."""
        if self.line is not None and self.line.is_paused:
            self.line.say(event)
        self.tell(event)

    def say(self, event: Telemetry) -> None:
        """Send it to the attached client, if any; it is of no use later."""
        if self.line is not None:
            self.line.say(event)

    def follow(self, line: ClientConnection, offset: int) -> None:
        """Send the client the journal on this connection from `offset` on."""
        self.line = line
        line.follow(self._journal, offset)

    def hung_up(self) -> None:
        """Note that the client is gone: ranks need not wait."""
        self.line = None
        self._hold(False)

    def caught_up(self) -> None:
        """Let ranks go on, if the client has caught up far enough."""
        line = self.line
        if self._held and line and self._journal.end - line.cursor < _MOST_BEHIND // 2:
            self._hold(False)

    def _hold(self, held: bool) -> None:
        self._held = held
        self.hold_ranks(held)
