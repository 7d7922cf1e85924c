"""Events that wait for a thread, and how much output they hold. Pure."""

from __future__ import annotations

from collections import deque

from skyward_nb.protocol.events import Event, Output, ValueWanted

FLOOD = 64_000_000
"""Letters of output that may wait. What is not read then stays in the agents' journals, on disk."""


class Inbox:
    """Events of a run in their order: one thread puts them there, another one takes them."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._put = self._taken = 0
        """Letters of output, each counted by one thread."""
        self._asked = self._answered = 0
        """Questions of ranks for a value, counted likewise."""

    def __bool__(self) -> bool:
        return bool(self._events)

    def put(self, event: Event) -> bool:
        """Have an event wait; whether it is output of which too much waits."""
        self._asked += isinstance(event, ValueWanted)
        self._events.append(event)
        if not isinstance(event, Output):
            return False
        self._put += len(event.text)
        return self.waiting > FLOOD

    def take(self) -> Event:
        """The next event."""
        event = self._events.popleft()
        self._answered += isinstance(event, ValueWanted)
        if isinstance(event, Output):
            self._taken += len(event.text)
        return event

    @property
    def asks(self) -> bool:
        """Whether a rank asks for a value of a generator, or of a person, and either may take its time."""
        return self._asked != self._answered

    @property
    def waiting(self) -> int:
        """How many letters of output wait."""
        return self._put - self._taken
