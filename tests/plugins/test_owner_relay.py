"""Who reaches a server that takes anybody: real sockets, another user, and a machine beside this one."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import queue
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import psutil
import pytest
from other_user import CONNECTS, as_another_user, needs_another_user
from waiting import until

from skyward_nb.plugins import connection_gate
from skyward_nb.plugins.owner_relay import OwnerRelay, hidden_address, other_machines
from skyward_nb.plugins.relay_process import Relay
from skyward_nb.words.info import InstanceInfo, Peer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="filters for sockets are Linux's")

OUTSIDE = next(
    (
        each.address
        for name, addresses in psutil.net_if_addrs().items()
        for each in addresses
        if name != "lo" and each.family == socket.AF_INET
    ),
    None,
)
needs_outside = pytest.mark.skipif(OUTSIDE is None, reason="this machine has loopback alone")


def echo(server):
    """Give back what comes, on each connection, until the server is closed."""

    def serve(connection):
        with connection, contextlib.suppress(OSError):
            while got := connection.recv(1 << 16):
                connection.sendall(got)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def reaches(port, host, source=None):
    """Whether somebody answers there; `source` is the address that it is asked from."""
    try:
        with socket.create_connection(
            (host, port), 0.5, source_address=source and (source, 0)
        ) as to:
            to.sendall(b"x")
            to.settimeout(60)
            return to.recv(1) == b"x"
    except OSError:
        return False


def is_loopback(address):
    """Whether only this machine reaches it."""
    return ipaddress.ip_address(address.removeprefix("::ffff:")).is_loopback


@pytest.fixture
def held():
    """A socket at a free port of loopback, as the agent holds it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        yield held


@pytest.fixture
def port(held):
    """Its port."""
    return held.getsockname()[1]


@contextmanager
def relayed(port, *, everywhere=False, address="127.0.0.1", machines=()):
    """A server that gives back what comes, behind a gate and a relay at this port."""
    relay = OwnerRelay(address, port, machines, everywhere=everywhere)
    try:
        with relay.server() as server:
            relay.check()
            echo(server)
            yield
            server.shutdown(socket.SHUT_RDWR)
    finally:
        relay.close()


@pytest.mark.parametrize("everywhere", [False, True])
def test_what_the_owner_sends_arrives_and_comes_back(port, everywhere):
    with relayed(port, everywhere=everywhere):
        sent = os.urandom(3_000_000)
        with socket.create_connection(("127.0.0.1", port), 60) as client:
            threading.Thread(target=client.sendall, args=(sent,), daemon=True).start()
            client.settimeout(60)
            assert client.makefile("rb").read(len(sent)) == sent


@needs_another_user
@pytest.mark.parametrize("everywhere", [False, True])
def test_another_user_of_this_machine_does_not_reach_it(port, everywhere):
    with relayed(port, everywhere=everywhere):
        assert as_another_user(CONNECTS, "127.0.0.1", port, "x").strip() == "closed"
        for host in (hidden_address(port), "127.0.0.2", OUTSIDE or "127.0.0.3", "::1"):
            assert as_another_user(CONNECTS, host, port, "x").strip() in ("dropped", "closed")
        assert reaches(port, "127.0.0.1")


@needs_another_user
def test_one_who_has_closed_is_not_taken_for_root(port):
    code = (
        "import socket, sys\nfor _ in range(20):\n"
        "    with socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5) as to: to.sendall(b'!')"
    )
    came = []
    relay = OwnerRelay("127.0.0.1", port)
    try:
        with relay.server() as server:
            as_another_user(code, port)
            with socket.create_connection(("127.0.0.1", port), 60) as own:
                own.sendall(b"x")
                server.settimeout(60)
                taken, _ = server.accept()
                with taken:
                    came.append(taken.recv(1))
    finally:
        relay.close()
    assert came == [b"x"]


def test_nobody_reaches_the_server_beside_the_relay(port):
    with relayed(port):
        assert not reaches(port, hidden_address(port))
        assert not reaches(port, hidden_address(port), "127.0.0.1")
        assert reaches(port, "127.0.0.1")


def test_a_relay_that_is_gone_leaves_the_gate_shut(port):
    gate = connection_gate.shut()
    with gate, connection_gate.server_behind(gate) as server:
        echo(server)
        connection_gate.admit(gate, [*range(1024, 1 << 16), *range(1, 1024)])
        assert not reaches(gate.getsockname()[1], "127.0.0.1"), "its port is not among the last"
        connection_gate.admit(gate, ())
        assert not reaches(gate.getsockname()[1], "127.0.0.1")


def test_a_relay_that_could_not_take_a_connection_takes_the_next(monkeypatch):
    """As where somebody has opened as many as it may have."""
    answers = [OSError(errno.EMFILE, "too many"), ConnectionAbortedError(), "client", None]

    class Door:
        def accept(self):
            answer = answers.pop(0)
            if isinstance(answer, str):
                return answer, ()
            raise answer or OSError(errno.EBADF, "closed")

        def fileno(self):
            return 3 if answers else -1

    served = queue.SimpleQueue()
    monkeypatch.setattr(Relay, "_serve", lambda _, client: served.put(client))
    with socket.create_server(("127.0.0.1", 0)) as gate:
        Relay(gate, "127.0.0.1", ()).accept_from(Door())
    assert served.get(timeout=60) == "client" and not answers


def test_connections_before_the_server_listens_wait_for_it(port):
    relay = OwnerRelay("127.0.0.1", port)
    try:
        with socket.create_connection(("127.0.0.1", port), 60) as early:
            early.sendall(b"early")
            with relay.server() as server:
                echo(server)
                early.settimeout(60)
                assert early.makefile("rb").read(5) == b"early"
                server.shutdown(socket.SHUT_RDWR)
    finally:
        relay.close()


def test_the_end_of_one_side_is_the_end_of_the_other(port):
    with relayed(port):
        with socket.create_connection(("127.0.0.1", port), 60) as client:
            client.sendall(b"last")
            client.shutdown(socket.SHUT_WR)
            client.settimeout(60)
            assert client.makefile("rb").read() == b"last"


def test_a_relay_ends_with_its_rank(port):
    code = (
        "import os, sys\nfrom skyward_nb.plugins.owner_relay import OwnerRelay\n"
        "relay = OwnerRelay('127.0.0.1', int(sys.argv[1]))\n"
        "print(relay._process.pid, flush=True)\nos.kill(os.getpid(), 9)"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(port)], capture_output=True, text=True)
    # Its port is free again.
    OwnerRelay("127.0.0.1", port).close()
    until(lambda: not psutil.pid_exists(int(ran.stdout)))


@needs_outside
def test_another_address_of_this_machine_is_not_listened_at(port):
    with relayed(port):
        assert not reaches(port, OUTSIDE)


@needs_outside
def test_a_server_everywhere_is_reached_by_its_relay_only(port):
    with relayed(port, everywhere=True):
        assert reaches(port, "127.0.0.1")
        for host in ("127.0.0.2", OUTSIDE, "::1"):
            assert not reaches(port, host)


def test_a_server_that_does_not_share_its_port_cannot_begin():
    with connection_gate.shut() as gate, pytest.raises(OSError, match="in use"):
        socket.create_server(gate.getsockname()[:2], family=gate.family)


def test_a_server_that_is_nowhere_is_said():
    with connection_gate.shut() as gate:
        with pytest.raises(RuntimeError, match="its socket was not found"):
            connection_gate.check(gate)


def test_a_port_that_is_taken_is_said(monkeypatch):
    monkeypatch.setattr("skyward_nb.plugins.owner_relay._TAKEN", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(OSError, match="in use"):
            OwnerRelay("127.0.0.1", taken.getsockname()[1])


def test_machines_of_a_pool_but_for_this_one():
    peers = Peer(0, "10.0.0.1"), Peer(1, "10.0.0.2"), Peer(2, "10.0.0.2"), Peer(3, "fd00::3")
    assert other_machines(InstanceInfo(node=1, peers=peers)) == ["10.0.0.1", "fd00::3"]
    assert other_machines(InstanceInfo()) == []


@contextmanager
def machine_beside():
    """A network of its own with a line to this one: its name, and the addresses at its two ends.

    No other run's: neither its name nor its addresses are those of one that goes on beside this.
    """
    name = f"sky{os.getpid()}"
    high, low = divmod(os.getpid() % (1 << 14), 1 << 6)
    here, there = f"10.215.{high}.{4 * low + 1}", f"10.215.{high}.{4 * low + 2}"
    script = (
        f"ip netns add {name} && ip link add {name} type veth peer name eth0 netns {name} && "
        f"ip addr add {here}/30 dev {name} && ip link set {name} up && "
        f"ip -n {name} addr add {there}/30 dev eth0 && ip -n {name} link set eth0 up"
    )
    try:
        made = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
        if made.returncode:
            pytest.skip(f"no network of its own can be made here: {made.stderr.strip()}")
        yield name, here, there
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)
        subprocess.run(["ip", "link", "del", name], capture_output=True)


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip"), reason="needs root, and the program ip"
)
def test_another_machine_does_not_unless_it_is_one_of_the_pool(port):
    with machine_beside() as (name, here, there):

        def comes_in(to):
            code = f"import socket, sys\n{CONNECTS}"
            words = ["ip", "netns", "exec", name, sys.executable, "-c", code, to, str(port), "x"]
            return "answered" in subprocess.run(words, capture_output=True, text=True).stdout

        with relayed(port, address=here):
            assert not comes_in(here)
        with relayed(port, address=here, machines=[there], everywhere=True):
            assert comes_in(here)
