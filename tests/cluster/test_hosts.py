"""The test hosts themselves are what they are taken for."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import asyncssh
import psutil
import pytest
from tiers import few
from waiting import until


def greeted(host, address=None, timeout=10.0):
    """Seconds until a connection to the host's server stands."""
    began = time.monotonic()
    with socket.create_connection((address or host.address, 22), timeout=timeout):
        return time.monotonic() - began


# ── logging in ──────────────────────────────────────────────────────────────────────────


def test_one_logs_in_by_the_config(hosts):
    town = hosts(2)
    for host in town:
        done = town.ssh(host.name, "hostname; whoami; pwd; ls /tmp /dev/shm")
        assert done.returncode == 0, done.stderr + host.sshd_log()
        assert done.stdout == f"{host.name}\nann\n/home/ann\n/dev/shm:\n\n/tmp:\n"


@pytest.mark.extensive
def test_asyncssh_logs_in_by_the_same_config(hosts):
    town = hosts(2)

    async def names():
        found = []
        for name in town.names:
            async with asyncssh.connect(name, config=[str(town.config)], agent_path=None) as line:
                found.append((await line.run("hostname", check=True)).stdout)
        return found

    assert asyncio.run(names()) == ["gpu1\n", "gpu2\n"]


def test_hosts_know_each_other_and_nobody_else(hosts):
    town = hosts(2)
    assert town[1].address in town[0].run("getent hosts gpu2")
    reach = "import socket; print(socket.create_connection(('%s', 22), 20).recv(4))"
    python = town[0].run(f'{sys.executable} -c "{reach % "gpu2"}"', user="ann")
    assert python == "b'SSH-'\n"
    with pytest.raises(RuntimeError, match="unreachable"):
        town[0].run(f'{sys.executable} -c "{reach % "192.0.2.1"}"', user="ann")


def test_hosts_are_there_by_ipv6(hosts):
    town = hosts(1)
    greeted(town[0], town[0].address6)
    done = town.ssh("gpu1", "echo $SSH_CONNECTION", "-o", f"HostName={town[0].address6}")
    assert town[0].address6 in done.stdout, done.stderr


def test_what_is_behind_a_host_is_reached_by_way_of_it(hosts):
    town = hosts(3, behind=True)
    assert town.ssh("gpu2", "hostname").stdout == "gpu2\n"
    with pytest.raises(OSError):
        greeted(town[1], timeout=1.0)
    assert town[0].back in town[1].run("getent hosts gpu1")
    # What is behind reaches what else is.
    assert town[2].address in town[1].run("getent hosts gpu3")


# ── who may ─────────────────────────────────────────────────────────────────────────────


def test_a_changed_host_key_is_refused_by_openssh(hosts):
    town = hosts(1)
    town[0].stop_sshd()
    town[0].new_host_key(town.folder)
    town[0].start_sshd()
    done = town.ssh("gpu1", "hostname")
    assert done.returncode == 255
    assert "IDENTIFICATION HAS CHANGED" in done.stderr
    town.know()
    assert town.ssh("gpu1", "hostname").stdout == "gpu1\n"


def test_an_unknown_host_key_is_refused_by_openssh(hosts):
    town = hosts(1)
    town.known_hosts.write_text("")
    done = town.ssh("gpu1", "hostname")
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr


def test_a_key_that_is_not_authorized_is_refused(hosts):
    town = hosts(1)
    town[0].authorize("ann", "")
    done = town.ssh("gpu1", "hostname")
    assert done.returncode == 255
    assert "Permission denied (publickey)" in done.stderr


def test_another_user_reads_nothing_of_the_first(hosts):
    host = hosts(1)[0]
    host.run(
        "umask 077; echo secret > ~/mine; mkdir /tmp/ours; echo secret > /tmp/ours/it", user="ann"
    )
    for path in ("~ann/mine", "/tmp/ours/it"):
        assert host.run(f"cat {path}", user="ann") == "secret\n"
        with pytest.raises(RuntimeError, match="Permission denied"):
            host.run(f"cat {path}", user="bob")


# ── the server ──────────────────────────────────────────────────────────────────────────


@pytest.mark.extensive
def test_the_server_is_killed_and_started_again(hosts):
    town = hosts(1)
    host = town[0]
    town.ssh("gpu1", "setsid sleep 1000 > /dev/null 2>&1 < /dev/null &")
    held = subprocess.Popen(
        ["ssh", "-F", str(town.config), "gpu1", "sleep 1001"], stdin=subprocess.DEVNULL
    )
    until(lambda: "sleep 1001" in host.processes().values())
    host.stop_sshd()
    assert held.wait() == 255
    assert "refused" in town.ssh("gpu1", "hostname").stderr
    assert "sleep 1000" in host.processes().values()
    host.start_sshd()
    assert town.ssh("gpu1", "hostname").stdout == "gpu1\n"


@pytest.mark.extensive
def test_one_session_per_connection_is_an_option(hosts):
    town = hosts(1)
    town[0].stop_sshd()
    town[0].start_sshd(MaxSessions=1)

    async def second():
        async with asyncssh.connect("gpu1", config=[str(town.config)], agent_path=None) as line:
            async with line.create_process("cat"):
                with pytest.raises(asyncssh.ChannelOpenError):
                    await line.run("true")

    asyncio.run(second())


def test_a_disk_gets_full(hosts):
    host = hosts(1, disk="16m")[0]
    host.fill(leave=4096)
    assert host.free() <= 8192
    with pytest.raises(RuntimeError, match="No space left"):
        host.run("head -c 100000 /dev/zero > ~/more", user="ann")
    host.unfill()
    host.run("head -c 100000 /dev/zero > ~/more", user="ann")


def test_a_host_has_the_python_it_is_given(hosts):
    town = hosts(1, python=None)
    assert town.ssh("gpu1", "python3 -c 1").returncode == 127
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert town.ssh("gpu1", f"{sys.executable} --version").stdout.startswith(f"Python {own}.")
    given = hosts(1)
    assert given.ssh("gpu1", "python3 --version").stdout.startswith(f"Python {own}.")


# ── the line ────────────────────────────────────────────────────────────────────────────


def test_a_line_is_cut_and_mended(hosts):
    town = hosts(2)
    greeted(town[0])
    town[0].cut()
    with pytest.raises(TimeoutError):
        greeted(town[0], timeout=0.5)
    greeted(town[1])
    town[0].mend()
    greeted(town[0])


@pytest.mark.extensive
def test_a_line_has_a_delay(hosts):
    town = hosts(2)
    town[0].netem(delay=0.5)
    assert greeted(town[0]) >= 1.0
    # The other one is as it was; so is this one when it is told.
    assert min(greeted(town[1]) for _ in range(5)) < 1.0
    town[0].netem()
    assert min(greeted(town[0]) for _ in range(5)) < 1.0
    assert town.ssh("gpu1", "hostname").stdout == "gpu1\n"


@pytest.mark.extensive
def test_a_line_has_a_rate(hosts):
    town = hosts(1)
    town[0].netem(rate=4e6)
    before, _ = town[0].line.moved()
    began = time.monotonic()
    got = town.ssh("gpu1", "head -c 4000000 /dev/zero | tr '\\0' x").stdout
    assert len(got) == 4_000_000
    assert time.monotonic() - began >= 0.9
    came, _ = town[0].line.moved()
    assert came - before >= 4_000_000


def test_a_line_loses_some(hosts):
    host = hosts(1)[0]
    # The neighbours know each other by now: who may ask for an address only thrice may lose it.
    greeted(host)
    host.netem(loss=0.2)

    def arrived():
        return int(host.box.run("cat", "/sys/class/net/eth0/statistics/rx_packets"))

    before = arrived()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as talker:
        for _ in range(2000):
            talker.sendto(b"x", (host.address, 9))
            time.sleep(0.0002)
    until(lambda: arrived() - before > 1400)
    assert 1400 < arrived() - before < 1800


def test_the_line_to_the_notebook_is_one_too(hosts):
    town = hosts(2)
    town.line.netem(delay=0.05)
    assert all(greeted(each) >= 0.1 for each in town)
    town.line.cut()
    with pytest.raises(TimeoutError):
        greeted(town[0], timeout=0.5)
    reach = "import socket; print(socket.create_connection(('gpu2', 22), 20).recv(4))"
    assert town[0].run(f'{sys.executable} -c "{reach}"') == "b'SSH-'\n"


def test_a_way_out_is_there_for_whoever_asks(hosts):
    """The proxy joins a socket on the street with one of this machine's."""
    town = hosts(1, egress=True)
    with socket.create_server(("127.0.0.1", 0)) as here:
        target = f"127.0.0.1:{here.getsockname()[1]}"
        ask = (
            "import os, socket; from urllib.parse import urlsplit; "
            "way = urlsplit(os.environ['HTTPS_PROXY']); "
            "line = socket.create_connection((way.hostname, way.port)); "
            f"line.sendall(b'CONNECT {target} HTTP/1.1\\r\\n\\r\\n'); "
            "line.sendall(b'hello'); print(line.makefile('rb').read())"
        )
        words = ["ssh", "-F", str(town.config), "gpu1", f'{sys.executable} -c "{ask}"']
        with subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        ) as asking:
            talk, _ = here.accept()
            with talk:
                assert talk.recv(5) == b"hello"
                talk.sendall(b"welcome")
            assert asking.stdout.read() == repr(b"HTTP/1.1 200 OK\r\n\r\nwelcome") + "\n"


# ── the end ─────────────────────────────────────────────────────────────────────────────


def links():
    return {name for _, name in socket.if_nameindex()}


def network_of(pid):
    return Path(f"/proc/{pid}/ns/net").readlink()


def namespaces():
    """Network namespaces that any process of this machine is in."""
    found = set()
    for process in psutil.process_iter():
        try:
            found.add(network_of(process.pid))
        except OSError:
            """It has ended."""
    return found


@contextmanager
def kept_numbers(pids):
    """Within, the kernel gives the numbers of these processes' networks to no others: it would do so at once."""
    with ExitStack() as opened:
        for pid in pids:
            opened.enter_context(open(f"/proc/{pid}/ns/net"))
        yield


HAVE_OWN = {"/tmp", "/var/tmp", "/dev/shm", "/run", "/root", "/home"}
"""Folders in which hosts have a file system of their own, beside files of /etc."""


def mounts(own):
    """What is mounted where hosts mount, each as often as it is, and in this folder: other tests mount elsewhere meanwhile."""
    with open("/proc/self/mountinfo") as table:
        places = sorted(line.split()[4] for line in table)
    return [each for each in places if each in HAVE_OWN or each.startswith(("/etc/", str(own)))]


_STARTS = """
import json, signal, sys
from pathlib import Path
from cluster.town import Town
town = Town(2, Path(sys.argv[1]))
town[0].netem(delay=0.01)
town.ssh("gpu1", "setsid sleep 1000 > /dev/null 2>&1 < /dev/null &")
print(json.dumps([town.street.link, *(each.box.pid for each in [town.street, *town])]), flush=True)
signal.pause()
"""


@pytest.mark.parametrize("number", few(1, [signal.SIGKILL, signal.SIGTERM]))
def test_nothing_is_left_when_the_test_is_killed(hosts, tmp_path, number):
    before = mounts(tmp_path)
    words = [sys.executable, "-c", _STARTS, str(tmp_path / "town")]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env) as test:
        link, *boxes = json.loads(test.stdout.readline())
        own = {network_of(pid) for pid in boxes}
        assert len(own) == 3
        assert own <= namespaces()
        assert link in links()
        with kept_numbers(boxes):
            test.send_signal(number)
            until(lambda: not own & namespaces())
    until(lambda: link not in links())
    assert mounts(tmp_path) == before


def test_nothing_is_left_when_the_test_is_over(new_hosts, tmp_path):
    before = mounts(tmp_path)
    town = new_hosts(2)
    town[0].netem(delay=0.01)
    town.ssh("gpu1", "setsid sleep 1000 > /dev/null 2>&1 < /dev/null &")
    boxes = [each.box.pid for each in (town.street, *town)]
    own = set(map(network_of, boxes))
    assert own <= namespaces()
    with kept_numbers(boxes):
        town.close()
        assert town.street.link not in links()
        assert not own & namespaces()
    assert mounts(tmp_path) == before
