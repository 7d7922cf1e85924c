"""Ports of a generation that are held for it."""

from __future__ import annotations

from skyward_nb.node import reserved_ports
from skyward_nb.node.reserved_ports import ReservedPorts
from skyward_nb.protocol.commands import Reserve


def test_no_port_is_one_of_the_generation_before(monkeypatch):
    ports = ReservedPorts()
    before = ports.reserve(Reserve(1, nodes=(0,), slots=2, servers=("tensorflow",)))
    ports.take_rendezvous().close()  # its rank has died
    held, given = reserved_ports._hold, iter([before.port])
    # Linux gives out the number that is free again.
    monkeypatch.setattr(
        reserved_ports, "_hold", lambda at, port=0: held(at, port or next(given, 0))
    )
    after = ports.reserve(Reserve(2, nodes=(0,), slots=2, servers=("tensorflow",)))
    assert after.port != before.port
    assert not set(servers(after)) & set(servers(before))
    with ports.take_rendezvous() as rendezvous:
        assert rendezvous.getsockname()[1] == after.port


def test_a_port_that_is_wanted_is_had_again():
    ports = ReservedPorts()
    wanted = ports.reserve(Reserve(1)).port
    assert ports.reserve(Reserve(2, port=wanted)).port == wanted
    ports.take_rendezvous().close()


def servers(reserved):
    return [port for peer in reserved.peers for each in peer.ports.values() for port in each]
