"""Hosts that reach no index of packages: these come over the line, where that is allowed, for its user alone."""

import asyncio
import contextlib
import re
import socket

import pytest

from skyward_nb.bootstrap.egress import EgressProxy, place_of
from skyward_nb.providers.ssh.dialer import Dialer
from skyward_nb.providers.ssh.ssh_line import HostLine
from skyward_nb.words.hosts import SSHAccess, parse_host

pytestmark = pytest.mark.timeout(300)


def at_home(host):
    """Ports of its own loopback that a host listens at."""
    lines = host.run("cat /proc/net/tcp").splitlines()[1:]
    words = [line.split() for line in lines]
    return [local for _, local, _, state, *_ in words if state == "0A" and local[:8] == "0100007F"]


@pytest.mark.extensive
@pytest.mark.parametrize("count", [1, 2])
def test_packages_come_over_the_line_and_nothing_stays_of_it(hosts, notebook, index_here, count):
    town = hosts(count)
    with notebook(town) as book:
        book.has_environment_of(index_here)
        assert book.values("import six\nsix.__name__", timeout=200) == ["six"] * count
        for host in town:
            assert at_home(host) == []
            said = book.here(f"%sky logs node={host.name}")
            assert f"environment: {host.name} does not reach 127.0.0.1: packages come over" in said
            assert "environment: Installed " in said
            assert re.search(r"environment: \S+ MB came over this line: done after ", said)
            assert "skyward:" not in said
        # What is found again needs no way out.
        assert book.kernel.run("%sky down", 60).status == "ok"
        assert book.values("import six\nsix.__name__") == ["six"] * count
        assert "over this line" not in book.here("%sky logs node=all")


@pytest.mark.extensive
def test_where_sshd_forbids_it_the_error_says_so(hosts, notebook, index_here):
    town = hosts(1)
    town[0].stop_sshd()
    town[0].start_sshd(AllowTcpForwarding="no")
    with notebook(town) as book:
        book.has_environment_of(index_here)
        ran = book.cell("1", timeout=200)
        assert ran.status == "error" and ran.error[0] == "HostNotReady"
        text = " ".join(ran.traceback.split())
        assert "it does not reach 127.0.0.1:" in text
        assert "nothing comes over this line: its sshd forwards no port" in text
        assert "AllowTcpForwarding" in text
        command = re.search(r"%sky logs node=gpu1 pool=default-\w+", text)
        assert command, text
        said = book.here(command[0])
        assert "] " in said and "error: " in said and "login: ann@" in said


def test_another_user_of_the_host_does_not_get_out(hosts, index_here):
    town = hosts(1)
    place = place_of(index_here)
    proxy = EgressProxy([place])
    get = (
        "exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET {index_here}/six/ HTTP/1.1\\r\\nHost: x\\r\\n"
        "{more}\\r\\n' >&3; cat <&3"
    )

    def ask(port, user, more=""):
        return town[0].run(
            f'bash -c "{get.format(port=port, index_here=index_here, more=more)}"', user=user
        )

    async def once():
        access = SSHAccess(hosts=(parse_host("gpu1"),), config=str(town.config))
        line = HostLine(access.hosts[0], Dialer(access))
        try:
            async with line.offer(proxy.serve) as port:
                refused = [await asyncio.to_thread(ask, port, user) for user in ("bob", "ann")]
                return refused, at_home(town[0])
        finally:
            await line.close()

    refused, listening = asyncio.run(once())
    assert all(each.startswith("HTTP/1.1 407 ") and "six-" not in each for each in refused)
    assert len(listening) == 1
    assert at_home(town[0]) == []


def test_an_sshd_that_listens_for_all_lets_nobody_else_in(hosts):
    town = hosts(1)
    town[0].stop_sshd()
    town[0].start_sshd(GatewayPorts="yes")
    served = []

    async def serve(reader, writer):
        served.append(await reader.read(1))

    def ask(port):
        with socket.create_connection((town[0].address, port), 20) as there:
            there.sendall(b"x")
            with contextlib.suppress(ConnectionResetError):
                return there.recv(1)
        return b""

    async def once():
        access = SSHAccess(hosts=(parse_host("gpu1"),), config=str(town.config))
        line = HostLine(access.hosts[0], Dialer(access))
        try:
            async with line.offer(serve) as port:
                return await asyncio.to_thread(ask, port)
        finally:
            await line.close()

    assert asyncio.run(once()) == b""
    assert not served
