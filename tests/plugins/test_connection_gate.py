"""Who reaches a server that listens everywhere: real sockets, and a real machine beside this one."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager

import psutil
import pytest

from skyward_nb.plugins.connection_gate import gate
from skyward_nb.plugins.framework_sockets import listening_at

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


def listening(port, *, shares=True):
    """A server on all addresses, as gRPC makes its own."""
    server = socket.socket(socket.AF_INET6)
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shares:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    server.bind(("::", port))
    server.listen()
    return server


def reaches(port, host, source=None):
    try:
        with socket.create_connection((host, port), 0.5, source_address=source and (source, 0)):
            return True
    except OSError:
        return False


@pytest.fixture
def port():
    """A free port that the agent would hold."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_loopback_reaches_it_and_what_is_sent_arrives(port):
    with gate(port, ["127.0.0.1"]):
        server = listening(port)
    with server:
        (found,) = listening_at(port)
        found.close()
        for host in ("127.0.0.1", "127.0.0.2", "::1"):
            with socket.create_connection((host, port), 5) as client:
                theirs, _ = server.accept()
                with theirs:
                    client.sendall(b"x" * 100_000)
                    assert len(theirs.recv(100_000, socket.MSG_WAITALL)) == 100_000


@needs_outside
def test_another_address_does_not_before_nor_after_it_listens(port):
    with gate(port, ["127.0.0.1"]):
        assert not reaches(port, OUTSIDE)
        server = listening(port)
        assert not reaches(port, OUTSIDE)
        assert reaches(port, "127.0.0.1")
    with server:
        assert not reaches(port, OUTSIDE)
        assert reaches(port, "127.0.0.1")


@needs_outside
def test_a_peer_does(port):
    with gate(port, ["10.20.30.40", "::ffff:1.2.3.4", OUTSIDE, "fe80::1"]):
        server = listening(port)
    with server:
        assert reaches(port, OUTSIDE, OUTSIDE)


def test_a_server_that_does_not_share_its_port_cannot_begin(port):
    with pytest.raises(OSError, match="in use"):
        with gate(port, []):
            listening(port, shares=False)


def test_a_server_that_is_nowhere_is_not_kept(port):
    with pytest.raises(RuntimeError, match="its socket was not found"):
        with gate(port, []):
            """Nothing listens."""


def test_a_port_that_is_taken_is_said(port):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(RuntimeError, match="not be limited to the pool's machines"):
            with gate(taken.getsockname()[1], []):
                """Not reached."""


@contextmanager
def machine_beside():
    """A network of its own with a line to this one: its name, and the addresses at its two ends.

    No other run's: neither its name nor its addresses are those of one that goes on beside this.
    """
    name = f"sky{os.getpid()}"
    high, low = divmod(os.getpid() % (1 << 14), 1 << 6)
    here, there = f"10.213.{high}.{4 * low + 1}", f"10.213.{high}.{4 * low + 2}"
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
def test_another_machine_does_not_unless_it_is_a_peer(port):
    code = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 1)"
    with machine_beside() as (name, here, there):

        def comes_in():
            words = ["ip", "netns", "exec", name, sys.executable, "-c", code, here]
            return subprocess.run([*words, str(port)], capture_output=True).returncode == 0

        with listening(port):
            assert comes_in(), "without a gate it does"
        with gate(port, ["127.0.0.1"]):
            server = listening(port)
        with server:
            assert not comes_in()
            assert reaches(port, "127.0.0.1")
        with gate(port, [here, there]):
            server = listening(port)
        with server:
            assert comes_in()
