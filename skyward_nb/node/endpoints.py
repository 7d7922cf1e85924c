"""The addresses of this machine at which others of its pool may reach it, and tests of theirs.

During the search each machine listens on all of them; peers know a random word. Private addresses may
be ambiguous, as those of container bridges: so they are tried.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from skyward_nb.protocol.message_parts import Endpoint
from skyward_nb.runtime.reach import ProbeListener, reach
from skyward_nb.system.addresses import is_private
from skyward_nb.words.findings import ReachResult

_PATIENCE = 4.0


class Endpoints:
    """Listens on every address that is no public one, or on loopback alone, for those who know the word."""

    def __init__(self, first: int, word: bytes, *, loopback: bool = False) -> None:
        self._listeners: list[ProbeListener] = []
        self.there: list[Endpoint] = []
        for number, (address, interface) in enumerate(own_addresses(loopback=loopback), first):
            try:
                listener = ProbeListener(number, address, word)
            except OSError:
                continue  # an address that is just going
            self._listeners.append(listener)
            self.there.append(Endpoint(number, address, interface, listener.port))

    def close(self) -> None:
        """Listen no more."""
        for each in self._listeners:
            each.close()
        self._listeners.clear()


def probe(endpoints: Iterable[Endpoint], word: bytes) -> list[ReachResult]:
    """Connect to the endpoints of other machines, all at once; the result for each."""
    return reach(
        [(endpoint.number, endpoint.address, endpoint.port) for endpoint in endpoints],
        word,
        _PATIENCE,
    )


def own_addresses(*, loopback: bool) -> list[tuple[str, str]]:
    """Addresses with their interfaces, of the fastest first: those of `loopback`, or all others."""
    import psutil

    states = psutil.net_if_stats()
    found: list[tuple[tuple[int, int], str, str]] = []
    for place, (interface, addresses) in enumerate(psutil.net_if_addrs().items()):
        state = states.get(interface)
        if state is not None and not state.isup:
            continue
        for each in addresses:
            if each.family in (socket.AF_INET, socket.AF_INET6) and _is_meant(
                each.address, loopback=loopback
            ):
                speed = state.speed if state is not None else 0
                found.append(((-speed, place), each.address, interface))
    return [(address, interface) for _, address, interface in sorted(found)]


def _is_meant(text: str, *, loopback: bool) -> bool:
    """Whether an address is of `loopback`, or one that nobody from the internet reaches."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False  # with a zone: it is reached by way of one interface only
    if loopback or address.is_loopback:
        return loopback and address.is_loopback
    return is_private(text)
