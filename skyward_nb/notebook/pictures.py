"""The pictures of a pool's runs: what a rank shows goes to that of its own run, however late."""

from __future__ import annotations

from collections import deque

from skyward_nb.notebook.display import RunDisplay
from skyward_nb.words.messages import Clear, Display, Event, Metric, Output, Progress, Stage

_KEPT = 8
_OF_A_RUN = (Output, Display, Clear, Progress, Metric, Stage)


class Pictures:
    """The displays of one pool, the last few of which can still be drawn anew."""

    def __init__(self) -> None:
        self._displays: deque[RunDisplay] = deque(maxlen=_KEPT)

    def begin(self, display: RunDisplay) -> None:
        """A run begins, and has this display."""
        self._displays.append(display)

    def watch(self, event: Event | None) -> None:
        """Give an event to the display of its run; of others, to the one of the run going on."""
        if not self._displays:
            return
        now = self._displays[-1]
        if isinstance(event, _OF_A_RUN) and 0 < event.run < now.first_run:
            self.late(event)
        else:
            now.watch(event)

    def late(self, event: Event | None) -> None:
        """Give what came after its run's end to the display of that run, if it is still known."""
        if not isinstance(event, _OF_A_RUN):
            return
        for display in reversed(self._displays):
            if 0 < display.first_run <= event.run:
                display.late(event)
                return

    def renew(self) -> None:
        """Draw those to which something came late."""
        for display in self._displays:
            display.renew()
