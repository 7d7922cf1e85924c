"""The search for addresses at which the machines of a pool reach one another: each one tries the others'."""

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
"""Seconds, enough for a cut line to be noticed, opened again and asked once more."""
_MOST_ENDPOINTS = 1000


def meet(names: Sequence[str], lines: Lines, watch: Watch) -> tuple[Endpoint, ...]:
    """The endpoint of each machine that all others reach; raises `MachinesUnreachable` with the pairs that fail."""
    watch(Phase("finding out where machines reach one another"))
    try:
        with contextlib.suppress(MachinesUnreachable):  # names of one machine
            return _try(names, lines, watch, loopback=True)
        return _try(names, lines, watch, loopback=False)
    finally:
        watch(Phase(""))


def _try(
    names: Sequence[str], lines: Lines, watch: Watch, *, loopback: bool
) -> tuple[Endpoint, ...]:
    """Have all machines listen, then have each try the endpoints of the others."""
    word = secrets.token_bytes(WORD)
    endpoints: dict[int, tuple[Endpoint, ...]] = {}
    reached: dict[int, tuple[ReachResult, ...]] = {}
    for number, link in enumerate(lines.links):
        lines.tell(link, ListenForPeers(number, number * _MOST_ENDPOINTS, word, loopback))
    for event in lines.pump(watch, time.monotonic() + _LIMIT):
        if isinstance(event, PeersProbed):
            reached[event.machine] = event.reached
            if len(reached) == len(names):
                break
        elif isinstance(event, PeerListening):
            endpoints[event.machine] = event.endpoints
            if len(endpoints) == len(names):
                for number, link in enumerate(lines.links):
                    others = [found for other, found in endpoints.items() if other != number]
                    lines.tell(link, ProbePeers(number, tuple(itertools.chain(*others)), word))
    return shared_endpoints(names, endpoints, reached)
