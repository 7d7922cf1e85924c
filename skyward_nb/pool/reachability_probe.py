"""Has the machines of a pool find out where they reach one another: asked, and tried."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import time
from collections.abc import Sequence

from skyward_nb.pool.lines import Lines, Watch
from skyward_nb.pool.reachability import MachinesUnreachable, shared_endpoints
from skyward_nb.protocol.commands import ListenForPeers, ProbePeers
from skyward_nb.protocol.events import PeerListening, PeersProbed, Phase
from skyward_nb.protocol.message_parts import Endpoint
from skyward_nb.runtime.reach import WORD
from skyward_nb.words.findings import ReachResult

_LIMIT = 60.0
"""Seconds; a line that was cut is found out, opened again and asked once more meanwhile."""
_MOST_DOORS = 1000


def meet(names: Sequence[str], lines: Lines, watch: Watch) -> tuple[Endpoint, ...]:
    """The address of each machine that the others reach; raises `MachinesUnreachable` naming those that do not."""
    watch(Phase("finding out where machines reach one another"))
    try:
        with contextlib.suppress(MachinesUnreachable):  # they are one machine in truth
            return _try(names, lines, watch, loopback=True)
        return _try(names, lines, watch, loopback=False)
    finally:
        watch(Phase(""))


def _try(
    names: Sequence[str], lines: Lines, watch: Watch, *, loopback: bool
) -> tuple[Endpoint, ...]:
    meeting = _Probing(lines, len(names), loopback=loopback)
    for event in lines.pump(watch, time.monotonic() + _LIMIT):
        meeting.hear(event)
        if len(meeting.reached) == len(names):
            break
    return shared_endpoints(names, meeting.endpoints, meeting.reached)


class _Probing:
    """What machines have said so far: their endpoints, and which of the others' they reached."""

    def __init__(self, lines: Lines, many: int, *, loopback: bool) -> None:
        self._lines = lines
        self._many = many
        self._word = secrets.token_bytes(WORD)
        self.endpoints: dict[int, tuple[Endpoint, ...]] = {}
        self.reached: dict[int, tuple[ReachResult, ...]] = {}
        for number, link in enumerate(lines.links):
            lines.tell(link, ListenForPeers(number, number * _MOST_DOORS, self._word, loopback))

    def hear(self, event: object) -> None:
        """Once all listen, have each try the endpoints of the others."""
        if isinstance(event, PeersProbed):
            self.reached[event.machine] = event.reached
        elif isinstance(event, PeerListening):
            self.endpoints[event.machine] = event.endpoints
            if len(self.endpoints) == self._many:
                for number, link in enumerate(self._lines.links):
                    self._lines.tell(link, ProbePeers(number, self._others(number), self._word))

    def _others(self, number: int) -> tuple[Endpoint, ...]:
        others = (endpoints for other, endpoints in self.endpoints.items() if other != number)
        return tuple(itertools.chain.from_iterable(others))
