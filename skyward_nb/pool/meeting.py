"""Has the machines of a pool find out where they reach one another: asked, and tried."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import time
from collections.abc import Sequence

from skyward_nb.pool.doors import Apart, meeting_places
from skyward_nb.pool.lines import Lines, Watch
from skyward_nb.runtime.reach import WORD
from skyward_nb.words.commands import Knock, Meet
from skyward_nb.words.events import Knocked, Met, Phase
from skyward_nb.words.findings import Reached
from skyward_nb.words.meeting import Door

_LIMIT = 60.0
"""Seconds; a line that was cut is found out, opened again and asked once more meanwhile."""
_MOST_DOORS = 1000


def meet(names: Sequence[str], lines: Lines, watch: Watch) -> tuple[Door, ...]:
    """The address of each machine that the others reach; raises `Apart` naming those that do not."""
    watch(Phase("finding out where machines reach one another"))
    try:
        with contextlib.suppress(Apart):  # they are one machine in truth
            return _try(names, lines, watch, loopback=True)
        return _try(names, lines, watch, loopback=False)
    finally:
        watch(Phase(""))


def _try(names: Sequence[str], lines: Lines, watch: Watch, *, loopback: bool) -> tuple[Door, ...]:
    meeting = _Meeting(lines, len(names), loopback=loopback)
    for event in lines.pump(watch, time.monotonic() + _LIMIT):
        meeting.hear(event)
        if len(meeting.reached) == len(names):
            break
    return meeting_places(names, meeting.doors, meeting.reached)


class _Meeting:
    """What machines have said so far: their doors, and which of the others' they reached."""

    def __init__(self, lines: Lines, many: int, *, loopback: bool) -> None:
        self._lines = lines
        self._many = many
        self._word = secrets.token_bytes(WORD)
        self.doors: dict[int, tuple[Door, ...]] = {}
        self.reached: dict[int, tuple[Reached, ...]] = {}
        for number, link in enumerate(lines.links):
            lines.tell(link, Meet(number, number * _MOST_DOORS, self._word, loopback))

    def hear(self, event: object) -> None:
        """Once all listen, have each try the doors of the others."""
        if isinstance(event, Knocked):
            self.reached[event.machine] = event.reached
        elif isinstance(event, Met):
            self.doors[event.machine] = event.doors
            if len(self.doors) == self._many:
                for number, link in enumerate(self._lines.links):
                    self._lines.tell(link, Knock(number, self._others(number), self._word))

    def _others(self, number: int) -> tuple[Door, ...]:
        others = (doors for other, doors in self.doors.items() if other != number)
        return tuple(itertools.chain.from_iterable(others))
