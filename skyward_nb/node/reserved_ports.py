"""The ports that an agent holds for the next generation: the rendezvous, and those of servers.

A port is bound and not listened on, so nobody else gets it; the framework that is to listen there
sets SO_REUSEADDR and binds it, too.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack

from skyward_nb.protocol.commands import Reserve
from skyward_nb.protocol.events import Reserved
from skyward_nb.system.addresses import family_of
from skyward_nb.words.info import Peer


class ReservedPorts:
    """Holds the ports of one generation until the next one reserves its own."""

    def __init__(self) -> None:
        self._rendezvous: socket.socket | None = None
        self._last = 0
        """The port of the last rendezvous, which may be free by now."""
        self._servers: list[socket.socket] = []

    def reserve(self, order: Reserve) -> Reserved:
        """Hold the ports of a generation instead of those of the one before.

        Where no port is wanted they are other ones: who is late of that generation meets nobody of this one.
        """
        with ExitStack() as before:
            for held in (self.take_rendezvous(), *self._servers):
                if held is not None:
                    before.enter_context(held)
            if order.port:  # it may be among them
                before.close()
            self._servers = []
            self._rendezvous = self._hold_rendezvous(order)
            peers = tuple(
                Peer(node, order.address, self._hold_for_servers(order), order.interface)
                for node in order.nodes
            )
        return Reserved(order.generation, self._rendezvous.getsockname()[1], peers)

    def _hold_rendezvous(self, order: Reserve) -> socket.socket:
        held = _hold(order.address, order.port)
        if not order.port and held.getsockname()[1] == self._last:
            with held:
                held = _hold(order.address)
        self._last = held.getsockname()[1]
        return held

    def take_rendezvous(self) -> socket.socket | None:
        """The socket of the rendezvous, once; the caller closes it."""
        taken, self._rendezvous = self._rendezvous, None
        return taken

    def _hold_for_servers(self, order: Reserve) -> dict[str, tuple[int, ...]]:
        """A node's ports, held until the next generation since servers may start late."""
        found: dict[str, tuple[int, ...]] = {}
        for name in order.servers:
            held = [_hold(order.address) for _ in range(order.slots)]
            self._servers += held
            found[name] = tuple(each.getsockname()[1] for each in held)
        return found


def _hold(address: str, wanted: int = 0) -> socket.socket:
    """Bind the wanted port, or a free one if that is taken."""
    held = socket.socket(family_of(address))
    try:
        # SO_REUSEADDR is set after this: before, it would get a port that another pool holds.
        held.bind((address, wanted))
    except OSError:
        held.close()
        if not wanted:
            raise
        return _hold(address)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return held
