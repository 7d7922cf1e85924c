"""Logging in to a real sshd: by which keys, with whose host keys, over which hosts, and what hinders."""

import asyncio
import contextlib
import os
import re
import socket
import stat
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager, contextmanager

import asyncssh
import psutil
import pytest
from sshds import lacks, make_key, sshd
from waiting import until

from skyward_nb.providers.far.login_errors import (
    ChangedKey,
    LoginRefused,
    UnknownKey,
    Unreachable,
)
from skyward_nb.providers.ssh import host_keys
from skyward_nb.providers.ssh.dialer import Dialer
from skyward_nb.words.hosts import SSHAccess, parse_hosts

pytestmark = pytest.mark.skipif(bool(lacks()), reason=lacks())


@pytest.fixture(autouse=True)
def own_config(tmp_path, monkeypatch):
    """No file of the person's is read or written."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


def access(server, *names, **others):
    given = server.access(*names, **others)
    return SSHAccess(**{**given, "hosts": parse_hosts(given["hosts"])})


@asynccontextmanager
async def logged_in(asked):
    dialer = Dialer(asked)
    user = object()
    dialer.used_by(user)
    try:
        connection = await dialer.dial(asked.hosts[0])
        yield connection
        connection.abort()
        await connection.wait_closed()
    finally:
        await dialer.let_go(user)


@contextmanager
def ssh_agent(path, monkeypatch, *keys, passphrase=""):
    """An ssh-agent that has these keys."""
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)

    def listens():
        # Its socket is there a moment before that.
        assert agent.poll() is None
        with socket.socket(socket.AF_UNIX) as asking:
            return asking.connect_ex(str(path)) == 0

    try:
        until(listens)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        ask = path.with_name("ask")
        ask.write_text(f"#!/bin/sh\necho {passphrase}\n")
        ask.chmod(0o700)
        environ = {**os.environ, "SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force"}
        subprocess.run(["ssh-add", "-q", *keys], check=True, env=environ, stdin=subprocess.DEVNULL)
        yield
    finally:
        agent.terminate()
        agent.wait()


def log_in(asked, command="echo $USER"):
    async def go():
        async with logged_in(asked) as connection:
            return (await connection.run(command, check=True)).stdout.strip()

    return asyncio.run(go())


# ── host keys ───────────────────────────────────────────────────────────────────────────


def test_a_host_whose_key_is_known(server):
    assert log_in(access(server)) == server.user


def test_an_unknown_host_key_is_shown_and_how_to_accept_it(server):
    server.know("")
    with pytest.raises(UnknownKey) as raised:
        log_in(access(server))
    public = server.host_key.with_suffix(".pub")
    line = subprocess.run(["ssh-keygen", "-lf", public], capture_output=True, text=True, check=True)
    fingerprint = line.stdout.split()[1]
    assert raised.value.fingerprint == fingerprint
    assert fingerprint in raised.value.why
    command = re.search(r"`(ssh [^`]*) true`", raised.value.why)[1]
    assert command.split()[1:] == [
        "-o", "StrictHostKeyChecking=ask", "-F", str(server.client_config), "-p", str(server.port), server.address,
    ]  # fmt: skip
    # The command that it names is one that OpenSSH understands; here it is told not to ask.
    accept = [*command.replace("=ask", "=accept-new").split(), "true"]
    subprocess.run(accept, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    assert log_in(access(server)) == server.user


def test_a_changed_host_key(server, tmp_path):
    server.know(make_key(tmp_path / "other").split(" test")[0])
    for trusts in ("known", "first"):
        with pytest.raises(ChangedKey, match="has changed") as raised:
            log_in(access(server, trust=trusts))
        assert f"ssh-keygen -R '{server.entry}'`" in raised.value.why
    assert not host_keys.pin_file().exists() or not host_keys.pin_file().read_text()


def test_the_first_key_is_pinned_where_that_is_asked_for(server, tmp_path):
    server.know("")
    asked = access(server, trust="first")
    assert log_in(asked) == server.user
    pins = host_keys.pin_file()
    assert pins.read_text().strip() == f"{server.entry} {server.host_public}"
    assert stat.S_IMODE(pins.stat().st_mode) == 0o600
    assert log_in(asked) == server.user
    assert len(pins.read_text().splitlines()) == 1
    # Pins count where they are asked for, and nowhere else; nobody's own file is written.
    with pytest.raises(UnknownKey):
        log_in(access(server))
    assert server.known_hosts.read_text() == ""

    server.stop()
    for path in (server.host_key, server.host_key.with_suffix(".pub")):
        path.unlink()
    make_key(server.host_key)
    server.start()
    with pytest.raises(ChangedKey) as raised:
        log_in(asked)
    remove = re.search(r"`(ssh-keygen -R [^`]*)`", raised.value.why)[1]
    assert str(pins) in remove
    subprocess.run(remove, shell=True, check=True, capture_output=True)
    assert log_in(asked) == server.user


def test_hosts_that_meet_the_same_host_first_pin_it_once(server):
    server.know("")
    asked = access(server, trust="first")

    async def several():
        async def one():
            async with logged_in(asked):
                pass

        await asyncio.gather(*(one() for _ in range(4)))

    asyncio.run(several())
    assert len(host_keys.pin_file().read_text().splitlines()) == 1


def test_hashed_entries_and_lines_that_cannot_be_read(server):
    hashed = ["ssh-keygen", "-H", "-f", server.known_hosts]
    subprocess.run(hashed, capture_output=True, check=True)
    text = server.known_hosts.read_text()
    assert "|1|" in text
    assert server.address not in text
    server.known_hosts.write_text(f"broken\n{server.entry} ssh-ed25519 AAAA\n{text}")
    assert log_in(access(server)) == server.user


def test_the_key_of_the_same_name_at_another_port_is_no_changed_one(server, tmp_path):
    other = make_key(tmp_path / "other").split(" test")[0]
    server.known_hosts.write_text(f"{server.address} {other}\n")
    with pytest.raises(UnknownKey) as raised:
        log_in(access(server))
    assert not isinstance(raised.value, ChangedKey)


@pytest.mark.parametrize("alias", [False, True])
def test_a_key_that_is_known_of_the_address_is_not_one_of_the_name(server, tmp_path, alias):
    other = make_key(tmp_path / "other").split(" test")[0]
    name = "aliased" if alias else "localhost"
    server.known_hosts.write_text(
        f"[{name}]:{server.port} {other}\n{server.entry} {server.host_public}\n"
    )
    server.say(f"Host {name}", "HostName localhost", *([f"HostKeyAlias {name}"] if alias else []))
    with pytest.raises(ChangedKey):
        log_in(access(server, name))
    server.known_hosts.write_text(f"[{name}]:{server.port} {server.host_public}\n")
    assert log_in(access(server, name)) == server.user


def test_a_revoked_host_key(server):
    server.known_hosts.write_text(
        f"@revoked * {server.host_public}\n{server.entry} {server.host_public}\n"
    )
    with pytest.raises(Unreachable, match="revoked"):
        log_in(access(server))


def test_no_known_hosts_file_is_not_no_check(server):
    server.say("UserKnownHostsFile none", "StrictHostKeyChecking no")
    with pytest.raises(UnknownKey):
        log_in(access(server))


def test_a_certified_host(server, tmp_path):
    authority = tmp_path / "authority"
    public = make_key(authority).split(" test")[0]
    sign = ["ssh-keygen", "-q", "-s", authority, "-I", "host", "-h", "-n", server.address]
    subprocess.run([*sign, server.host_key.with_suffix(".pub")], check=True, capture_output=True)
    server.stop()
    server.options["HostCertificate"] = f"{server.host_key}-cert.pub"
    server.start()
    # The key itself is known: its certificate does not matter.
    assert log_in(access(server)) == server.user
    server.known_hosts.write_text(f"@cert-authority * {public}\n")
    assert log_in(access(server)) == server.user
    stranger = make_key(tmp_path / "stranger").split(" test")[0]
    server.known_hosts.write_text(f"@cert-authority * {stranger}\n")
    with pytest.raises(UnknownKey, match="certified by"):
        log_in(access(server))


def test_the_key_that_is_known_is_the_one_asked_for(server, tmp_path):
    rsa = tmp_path / "host_rsa"
    public = make_key(rsa, "rsa").split(" test")[0]
    server.stop()
    server.options["HostKey"] = f"{server.host_key}\nHostKey {rsa}"
    server.start()
    server.know(public)
    assert log_in(access(server)) == server.user


# ── keys of the person ──────────────────────────────────────────────────────────────────


def test_a_key_that_is_refused_is_named(server, tmp_path):
    make_key(tmp_path / "mine")
    asked = access(server, key=str(tmp_path / "mine"))
    with pytest.raises(LoginRefused) as raised:
        log_in(asked)
    why = raised.value.why
    assert f"does not let {server.user} in" in why
    assert f"{tmp_path / 'mine'} (SHA256:" in why
    assert "ssh-copy-id" in why


def test_no_key_at_all(server):
    server.client_config.write_text(f"UserKnownHostsFile {server.known_hosts}\n")
    with pytest.raises(LoginRefused, match="no key, as there is none"):
        log_in(access(server))


def test_a_key_of_config_that_is_not_there_is_named(server, tmp_path):
    server.client_config.write_text(
        f"UserKnownHostsFile {server.known_hosts}\nIdentityFile {tmp_path / 'none'}\n"
    )
    with pytest.raises(LoginRefused, match=f"there is no {tmp_path / 'none'}"):
        log_in(access(server))


def test_a_locked_key_and_an_agent_that_has_it(server, tmp_path, monkeypatch):
    locked = tmp_path / "locked"
    server.authorized.write_text(make_key(locked, passphrase="secret"))
    server.client_config.write_text(
        f"UserKnownHostsFile {server.known_hosts}\nIdentityFile {locked}\n"
    )
    with pytest.raises(LoginRefused) as raised:
        log_in(access(server))
    assert f"`ssh-add {locked}`" in raised.value.why

    with ssh_agent(tmp_path / "agent", monkeypatch, locked, passphrase="secret"):
        assert log_in(access(server)) == server.user
        assert log_in(access(server, key=str(locked))) == server.user
        server.authorized.write_text("")
        with pytest.raises(LoginRefused, match="1 of ssh-agent"):
            log_in(access(server))


@pytest.mark.parametrize("by", ["key=", "IdentityFile"])
@pytest.mark.parametrize("holder", ["agent", "file"])
def test_a_key_that_is_named_is_tried_before_those_of_an_agent(tmp_path, monkeypatch, by, holder):
    """Which may be more than the host lets one try."""
    paths = [tmp_path / f"key{number}" for number in range(5)]
    publics = [make_key(path) for path in paths]
    with sshd(tmp_path / "strict", MaxAuthTries=2) as server:
        server.authorized.write_text(publics[-1])
        plain = f"UserKnownHostsFile {server.known_hosts}\n"
        named = {} if by == "IdentityFile" else {"key": str(paths[-1])}
        if not named:
            plain += f"IdentityFile {paths[-1]}\n"
        server.client_config.write_text(plain)
        held = paths if holder == "agent" else paths[:-1]
        with ssh_agent(tmp_path / "agent", monkeypatch, *held):
            if holder == "agent":
                paths[-1].unlink()
            assert log_in(access(server, **named)) == server.user


# ── the way there ───────────────────────────────────────────────────────────────────────


def test_nothing_listens(server):
    server.stop()
    with pytest.raises(Unreachable, match=rf"nothing listens on 127.0.0.1 port {server.port}"):
        log_in(access(server))


def test_a_name_that_is_not_found(server):
    with pytest.raises(Unreachable, match=r"the name no-such-host.invalid is not found"):
        log_in(access(server, "no-such-host.invalid"))


def test_one_that_answers_nothing(server):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        asked = access(server, port=silent.getsockname()[1])
        with pytest.raises(Unreachable, match=r"did not answer in 0.3 s"):
            asyncio.run(Dialer(asked).dial(asked.hosts[0], limit=0.3))


def test_what_is_no_sshd(server):
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer():
            caller, _ = other.accept()
            # Who has enough hangs up, and may leave bytes unread.
            with caller, contextlib.suppress(OSError):
                caller.sendall(b"HTTP/1.1 400 Bad Request\r\n" * 2000)
                caller.shutdown(socket.SHUT_WR)
                caller.recv(1)

        answering = threading.Thread(target=answer)
        answering.start()
        asked = access(server, port=other.getsockname()[1])
        with pytest.raises(Unreachable, match=r"have no way of speaking in common"):
            asyncio.run(Dialer(asked).dial(asked.hosts[0], tries=1))
        answering.join()


def test_config_that_cannot_be_read(server):
    server.client_config.write_text("Port twenty\n")
    with pytest.raises(Unreachable, match=r"config cannot be read: .*line 1"):
        log_in(access(server))


def test_hosts_on_the_way_that_are_none_are_told_of_the_host_they_are_for(server):
    server.say("Host odd", "ProxyJump gate:twenty")
    with pytest.raises(Unreachable, match=r"`ProxyJump gate:twenty` .* names no hosts") as raised:
        log_in(access(server, "odd"))
    assert raised.value.host == "odd"
    assert log_in(access(server)) == server.user


def test_who_has_no_name_here(server, monkeypatch):
    def no_name():
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr("getpass.getuser", no_name)
    with pytest.raises(Unreachable, match=r"has no name on this machine.*set USER"):
        log_in(access(server))


def test_names_users_and_ports_of_config(server):
    server.say("Host gpu", f"HostName {server.address}", f"Port {server.port}", "Compression yes")
    asked = access(server, "gpu", port=None)
    assert log_in(asked) == server.user


def test_comments_behind_values_of_config(server):
    """OpenSSH takes them, an apostrophe in them included."""
    server.say(
        'Host gpu far # Bob\'s, that "old" one',
        f"HostName {server.address} # it's here",
        f"Port {server.port}\t#isn't it",
        "ServerAliveInterval 15 # as the firewall hasn't much patience",
    )
    assert log_in(access(server, "gpu", port=None)) == server.user


def test_ipv6(tmp_path):
    with sshd(tmp_path / "six", ListenAddress="::1") as server:
        assert log_in(access(server, "::1")) == server.user


def test_over_hosts_on_the_way_each_of_them_checked(server, tmp_path):
    with sshd(tmp_path / "jump") as jump:
        both = server.known_hosts.read_text() + jump.known_hosts.read_text()
        server.known_hosts.write_text(both)
        jump.authorized.write_text(server.authorized.read_text())
        via = f"ProxyJump {jump.address}:{jump.port}"
        server.say("Host far", f"HostName {server.address}", f"Port {server.port}", via)
        asked = access(server, "far", port=None)
        assert log_in(asked, "echo $SSH_CONNECTION").split()[3] == str(server.port)
        assert jump.logged("Accepted publickey") == 1

        server.known_hosts.write_text(f"{server.entry} {server.host_public}\n")
        with pytest.raises(Unreachable, match=r"on the way to it.*host key.*not known"):
            log_in(asked)
        assert log_in(access(server, "far", port=None, trust="first")) == server.user
        assert jump.entry in host_keys.pin_file().read_text()

        server.known_hosts.write_text(f"{jump.entry} {jump.host_public}\n")
        with pytest.raises(UnknownKey):
            log_in(asked)

        server.known_hosts.write_text(both)
        server.stop()
        with pytest.raises(Unreachable, match="the host on the way cannot reach"):
            log_in(asked)


def test_a_host_on_the_way_to_several_is_logged_in_to_once(server, tmp_path):
    with sshd(tmp_path / "jump") as jump:
        server.known_hosts.write_text(server.known_hosts.read_text() + jump.known_hosts.read_text())
        jump.authorized.write_text(server.authorized.read_text())
        server.say(
            "Host far*", f"HostName {server.address}", f"Port {server.port}",
            f"ProxyJump {jump.address}:{jump.port}",
        )  # fmt: skip
        asked = access(server, "far1", "far2", "far3", port=None)

        async def go():
            dialer = Dialer(asked)
            dialer.used_by(dialer)
            connections = await asyncio.gather(*(dialer.dial(host) for host in asked.hosts))
            assert jump.logged("Accepted publickey") == 1
            for each in connections:
                each.abort()
                await each.wait_closed()
            await dialer.let_go(dialer)

        asyncio.run(go())
        # Of a login sshd may tell a moment after whom it let in.
        until(lambda: server.logged("Accepted publickey") >= 3)
        assert server.logged("Accepted publickey") == 3


def test_a_host_on_the_way_that_drops_logins_is_tried_again(server, tmp_path):
    with sshd(tmp_path / "jump", MaxStartups=1) as jump:
        server.known_hosts.write_text(server.known_hosts.read_text() + jump.known_hosts.read_text())
        jump.authorized.write_text(server.authorized.read_text())
        server.say(
            "Host far", f"HostName {server.address}", f"Port {server.port}",
            f"ProxyJump {jump.address}:{jump.port}",
        )  # fmt: skip
        asked = access(server, "far", port=None)

        def dropped():
            while not jump.logged("drop connection"):
                time.sleep(0.01)

        async def go():
            dialer = Dialer(asked)
            dialer.used_by(dialer)
            _, standing = await asyncio.open_connection(jump.address, jump.port)
            dialing = asyncio.ensure_future(dialer.dial(asked.hosts[0], tries=12))
            await asyncio.to_thread(dropped)
            standing.close()
            connection = await dialing
            connection.abort()
            await connection.wait_closed()
            await dialer.let_go(dialer)

        asyncio.run(asyncio.wait_for(go(), 60))


def test_hosts_that_do_not_answer_hold_up_no_others(server):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dead = [f"silent{number}" for number in range(16)]
        server.say(
            "Host silent*", f"HostName {server.address}", f"Port {silent.getsockname()[1]}",
            "Host one", f"HostName {server.address}", f"Port {server.port}",
        )  # fmt: skip
        asked = access(server, *dead, "one", port=None)

        async def go():
            dialer = Dialer(asked)
            dialing = [
                asyncio.ensure_future(dialer.dial(host, limit=1000.0)) for host in asked.hosts
            ]
            connection = await dialing.pop()
            connection.abort()
            await connection.wait_closed()
            assert not any(each.done() for each in dialing)
            for each in dialing:
                each.cancel()
            await asyncio.gather(*dialing, return_exceptions=True)

        asyncio.run(asyncio.wait_for(go(), 60))


def test_a_host_that_is_on_the_way_to_itself(server):
    server.say(f"ProxyJump {server.address}:{server.port}")
    assert log_in(access(server)) == server.user


WAY = """
import os, socket, sys, threading
there = socket.create_connection((sys.argv[1], int(sys.argv[2])))
print("this way is watched", file=sys.stderr, flush=True)
open(sys.argv[3], "w").write(str(os.getpid()))
def back():
    while data := there.recv(65536):
        os.write(1, data)
    os._exit(0)
threading.Thread(target=back).start()
while data := os.read(0, 65536):
    there.sendall(data)
"""


def test_over_a_command_which_may_say_something_itself(server, tmp_path):
    (tmp_path / "way.py").write_text(WAY)
    pid = tmp_path / "pid"
    way = f"'{sys.executable}' {tmp_path}/way.py %h %p {pid}"
    server.say(f"HostName {server.address}", f"Port {server.port}", f"ProxyCommand {way}")
    asked = access(server, "far", port=None)
    assert log_in(asked, "head -c 3000000 /dev/zero | tr '\\0' x") == "x" * 3_000_000
    assert not psutil.pid_exists(int(pid.read_text()))
    # A host key is looked at as on any other way.
    server.know("")
    with pytest.raises(UnknownKey):
        log_in(asked)
    assert not psutil.pid_exists(int(pid.read_text()))


def test_a_command_that_opens_no_way_is_named_with_what_it_said(server):
    server.say("ProxyCommand sh -c 'echo no credentials >&2; exit 7'")
    with pytest.raises(Unreachable, match="ended with status 7: no credentials") as raised:
        log_in(access(server))
    assert not raised.value.passing


def test_a_server_that_drops_logins_is_tried_again(tmp_path):
    with sshd(tmp_path / "busy", MaxStartups="2:90:4") as server:
        asked = access(server)

        async def go():
            dialer = Dialer(asked)
            dialing = [dialer.dial(asked.hosts[0], tries=12) for _ in range(12)]
            connections = await asyncio.gather(*dialing)
            for each in connections:
                each.abort()
                await each.wait_closed()

        asyncio.run(go())
        until(lambda: server.logged("Accepted publickey") >= 12)
        assert server.logged("Accepted publickey") == 12


def test_what_a_connection_is_like(server):
    async def go():
        async with logged_in(access(server)) as connection:
            assert connection.get_extra_info("send_cipher") == "aes128-gcm@openssh.com"
            assert connection.get_extra_info("recv_cipher") == "aes128-gcm@openssh.com"
            assert connection.get_extra_info("send_compression") == "none"

    asyncio.run(go())
    assert asyncssh.__version__
