"""The address of each machine of a pool that all others reach: each machine listens, and tries the others'."""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import secrets
import time
from collections.abc import Mapping, Sequence

from skyward_nb.pool.lines import Lines, Watch
from skyward_nb.protocol.commands import ListenForPeers, ProbePeers
from skyward_nb.protocol.events import PeerListening, PeersProbed, Phase
from skyward_nb.protocol.message_parts import Endpoint
from skyward_nb.runtime.reach import WORD
from skyward_nb.words.findings import ReachResult

_LIMIT = 60.0
"""Seconds, enough for a cut line to be noticed, opened again and asked once more."""
_MOST_ENDPOINTS = 1000
_MOST_TOLD = 4


class MachinesUnreachable(Exception):
    """Machines do not reach one another; the text has the pairs, and the addresses tried."""


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


def shared_endpoints(
    names: Sequence[str],
    endpoints: Mapping[int, Sequence[Endpoint]],
    reached: Mapping[int, Sequence[ReachResult]],
) -> tuple[Endpoint, ...]:
    """The first endpoint of each machine that all others reach, all of one address family.

    Raises `MachinesUnreachable`, with the machines' `names`, if there is none.
    """
    open_to = {
        machine: {each.to for each in ways if not each.trouble} for machine, ways in reached.items()
    }
    everyone = range(len(names))
    for family in (4, 6) if open_to.keys() == {*everyone} else ():
        found = [_first(number, endpoints[number], open_to, family) for number in everyone]
        if all(found):
            return tuple(endpoint for endpoint in found if endpoint is not None)
    raise MachinesUnreachable(_told(names, endpoints, reached))


def _first(
    machine: int, endpoints: Sequence[Endpoint], open_to: Mapping[int, set[int]], family: int
) -> Endpoint | None:
    others = [reached for other, reached in open_to.items() if other != machine]
    for endpoint in endpoints:
        if ipaddress.ip_address(endpoint.address).version == family and all(
            endpoint.number in reached for reached in others
        ):
            return endpoint
    return None


def _told(
    names: Sequence[str],
    endpoints: Mapping[int, Sequence[Endpoint]],
    reached: Mapping[int, Sequence[ReachResult]],
) -> str:
    """The pairs that fail, in words."""
    said: list[str] = []
    for number, name in enumerate(names):
        there = endpoints.get(number)
        if there is None or number not in reached:
            said.append(f"{name} did not say whom it reaches")
            continue
        if not there:
            said.append(f"{name} has no address of a private network")
            continue
        for other, ways in reached.items():
            mine = [each for each in ways if each.to in {endpoint.number for endpoint in there}]
            if other != number and all(each.trouble for each in mine):
                trouble = {each.to: each.trouble for each in mine}
                tried = ", ".join(
                    f"{endpoint.address}: {trouble.get(endpoint.number, 'not tried')}"
                    for endpoint in there
                )
                said.append(f"{names[other]} does not reach {name} ({tried})")
    if not said:
        return "no address of each machine is reached by all the others"
    more = f"; and {len(said) - _MOST_TOLD} more pairs" * (len(said) > _MOST_TOLD)
    return "; ".join(said[:_MOST_TOLD]) + more
