"""Has the machines of a pool find out where they reach one another: asked, and tried."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import time
from collections.abc import Sequence

from skyward_nb.pool.lines import Lines, Watch
from skyward_nb.pool.reachable import Apart, meeting_places
from skyward_nb.protocol.commands import Listen, Probe
from skyward_nb.protocol.events import Listening, Phase, Probed
from skyward_nb.protocol.parts import Endpoint
from skyward_nb.runtime.reach import WORD
from skyward_nb.words.findings import Reached

_LIMIT = 60.0
"""Seconds; a line that was cut is found out, opened again and asked once more meanwhile."""
_MOST_DOORS = 1000


def meet(names: Sequence[str], lines: Lines, watch: Watch) -> tuple[Endpoint, ...]:
    """The address of each machine that the others reach; raises `Apart` naming those that do not."""
    watch(Phase("finding out where machines reach one another"))
    try:
        with contextlib.suppress(Apart):  # they are one machine in truth
            return _try(names, lines, watch, loopback=True)
        return _try(names, lines, watch, loopback=False)
    finally:
        watch(Phase(""))


def _try(
    names: Sequence[str], lines: Lines, watch: Watch, *, loopback: bool
) -> tuple[Endpoint, ...]:
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
        self.doors: dict[int, tuple[Endpoint, ...]] = {}
        self.reached: dict[int, tuple[Reached, ...]] = {}
        for number, link in enumerate(lines.links):
            lines.tell(link, Listen(number, number * _MOST_DOORS, self._word, loopback))

    def hear(self, event: object) -> None:
        """Once all listen, have each try the doors of the others."""
        if isinstance(event, Probed):
            self.reached[event.machine] = event.reached
        elif isinstance(event, Listening):
            self.doors[event.machine] = event.doors
            if len(self.doors) == self._many:
                for number, link in enumerate(self._lines.links):
                    self._lines.tell(link, Probe(number, self._others(number), self._word))

    def _others(self, number: int) -> tuple[Endpoint, ...]:
        others = (doors for other, doors in self.doors.items() if other != number)
        return tuple(itertools.chain.from_iterable(others))
