"""Pools on hosts that one logs in to, with a real sshd on loopback: what becomes of them, and of their lines."""

import asyncio
import os
import re
import shutil
import signal
import socket
import sys
import threading
import time
import warnings
from dataclasses import replace
from functools import partial

import psutil
import pytest
from pools import found, request, values
from providers.ssh_hosts import RANK, host, names_of
from sshds import lacks

from skyward_nb.api.nodelogs import logs_elsewhere, node_logs
from skyward_nb.pool import registry
from skyward_nb.pool.nodelog import agent_logs
from skyward_nb.providers.folders import runtime_root
from skyward_nb.providers.orphans import is_ours
from skyward_nb.providers.ssh import choosing, readying
from skyward_nb.providers.ssh.line import HostLine
from skyward_nb.wire.payload import unpack
from skyward_nb.words.errors import HostError, HostNotReady, PoolError
from skyward_nb.words.events import Output, Step
from skyward_nb.words.hosts import parse_hosts
from skyward_nb.words.image import Image
from skyward_nb.words.ssh import SSHAccess

np = pytest.importorskip("numpy")

pytestmark = pytest.mark.skipif(bool(lacks()), reason=lacks())


@pytest.fixture(scope="module")
def server_of_module(tmp_path_factory):
    with host(tmp_path_factory.mktemp("host")) as started:
        yield started


@pytest.fixture
def server(server_of_module):
    """The package stays there from test to test."""
    names_of(server_of_module)
    yield server_of_module
    server_of_module.renew()


@pytest.fixture
def ssh(server, make):
    def make_one(*names, **options):
        names = names or ("one", "two")
        access = SSHAccess(hosts=parse_hosts(names), config=str(server.client_config))
        return make(**{
            "provider": "ssh", "ssh": access, "nodes": len(names),
            "image": Image(interpreter=sys.executable), **options,
        })  # fmt: skip

    return make_one


def names(pool):
    return [machine.name for machine in pool.context.generations.machines]


# ── what runs there ─────────────────────────────────────────────────────────────────────


def test_a_cell_runs_on_each_host(ssh, server):
    pool = ssh("one", "two", "three")
    where = "import os\n(os.environ['RANK'], os.environ['NODE_RANK'], os.environ['SKYWARD_POOL'])"
    told = values(pool, where)
    assert [(rank, node) for rank, node, _ in told] == [("0", "0"), ("1", "1"), ("2", "2")]
    assert len({folder for _, _, folder in told}) == 3
    assert names(pool) == ["one", "two", "three"]
    # One connection to each host, and one session at a time.
    assert server.logged("Accepted publickey") == 3


def test_variables_go_there_and_are_in_no_list_of_processes(ssh):
    pool = ssh("one", env={"API_TOKEN": "hunter2"})
    assert values(pool, "import os\nos.environ['API_TOKEN']") == ["hunter2"]
    words = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
    assert not [each for each in words if "hunter2" in each]


@pytest.mark.parametrize("by", ["AllowStreamLocalForwarding", "DisableForwarding", "restrict"])
def test_an_sshd_that_forwards_no_sockets(ssh, server, no_leaks, by):
    server.stop()
    if by == "restrict":
        server.authorized.write_text(f"restrict {server.authorized.read_text()}")
    else:
        server.options[by] = "no" if by.startswith("Allow") else "yes"
    server.start()
    no_leaks.add(f"child {server.pid}")
    with pytest.raises(
        HostNotReady, match=r"sshd there does not let anybody reach it.*AllowStreamLocalForwarding"
    ):
        ssh("one")


# ── lines that are lost ─────────────────────────────────────────────────────────────────


def test_an_agent_that_is_gone_is_the_end_of_the_pool(ssh):
    pool = ssh("one")
    (agent,) = [
        each
        for each in psutil.process_iter(["cmdline"])
        if "skyward_nb.node" in (each.info["cmdline"] or ())
        and str(runtime_root()) in " ".join(each.info["cmdline"])
    ]
    agent.send_signal(signal.SIGKILL)
    with pytest.raises(PoolError, match="is gone"):
        values(pool, "1")
    assert pool.closed


def linked(folder, aside):
    aside.mkdir(mode=0o700)
    folder.symlink_to(aside)


def open_to_others(folder, aside):
    folder.mkdir()
    folder.chmod(0o755)


def another_users(folder, aside):
    if os.getuid():
        pytest.skip("only root can give a folder away")
    folder.mkdir(mode=0o700)
    os.chown(folder, 4002, 4002)


@pytest.mark.parametrize("made_anew", [linked, open_to_others, another_users])
def test_a_folder_that_others_may_enter_is_not_ours(tmp_path, made_anew):
    folder = tmp_path / "pool"
    made_anew(folder, tmp_path / "aside")
    assert not is_ours(folder)
    assert not is_ours(tmp_path / "nowhere")
    (own := tmp_path / "own").mkdir(mode=0o700)
    assert is_ours(own)


@pytest.mark.parametrize(
    "made_anew",
    [
        linked,
        *(
            pytest.param(each, marks=pytest.mark.extensive)
            for each in (open_to_others, another_users)
        ),
    ],
)
def test_who_answers_in_a_folder_that_is_not_ours_is_not_spoken_to(
    ssh, server, tmp_path, no_leaks, made_anew
):
    """As when the host was rebooted, and somebody else was there first."""
    pool = ssh("one")
    values(pool, "1")
    (folder,) = runtime_root().glob(f"{pool.pool_id}.0")
    server.stop()
    psutil.Process(int((folder / "lock").read_text())).kill()
    shutil.rmtree(folder)
    made_anew(folder, tmp_path / "aside")
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(folder / "agent.sock"))
        stranger.listen()
        stranger.setblocking(False)
        server.start()
        no_leaks.add(f"child {server.pid}")
        try:
            with pytest.raises(PoolError, match=f"is gone: {folder} there is not its folder"):
                values(pool, "1")
            with pytest.raises(BlockingIOError):
                stranger.accept()
        finally:
            pool.close()
            (folder.unlink if folder.is_symlink() else partial(shutil.rmtree, folder, True))()


# ── left, and found again ───────────────────────────────────────────────────────────────


def test_a_pool_is_left_and_found_again(ssh, server):
    pool = ssh("dead", "one", "two", nodes=2)
    values(pool, f"{RANK}kept = rank\nkept")
    other = found(pool)
    with pytest.raises(PoolError, match="is in use by"):
        other.attach(lambda _: None)
    pool.leave()
    other = found(pool)
    other.attach(lambda _: None)
    assert names(other) == ["one", "two"]
    assert values(other, "kept") == [0, 1]
    other.close()
    assert not registry.entries()


def test_a_pool_that_is_gone_meanwhile_is_not_found(ssh):
    pool = ssh("one")
    other = found(pool)
    pool.close()
    with pytest.raises(PoolError, match="is gone"):
        other.attach(lambda _: None)


def test_a_pool_whose_host_cannot_be_reached_is_not_gone(ssh, server, no_leaks):
    pool = ssh("one")
    values(pool, "kept = 5\nkept")
    pool.leave()
    server.stop()
    with pytest.raises(PoolError, match=r"cannot be reached now: .*try again") as told:
        found(pool).attach(lambda _: None)
    assert "gone" not in str(told.value)
    server.start()
    no_leaks.add(f"child {server.pid}")
    again = found(pool)
    again.attach(lambda _: None)
    assert values(again, "kept") == [5]
    again.close()


def test_a_run_goes_on_without_us_and_is_told_of_later(ssh, server):
    pool = ssh("one")
    body = "import time\nfor i in range(10):\n    print(i)\n    time.sleep(0.05)\n'end'"
    pool.look(lambda _: None)
    pool.begin(request(pool, body, detached=True), lambda _: None)
    pool.leave()
    other = found(pool)
    events = []
    other.attach(events.append)
    outcome = other.runs.follow(events.append)
    assert unpack(outcome.done[0].value, other.store) == "end"
    text = "".join(e.text for e in events if isinstance(e, Output))
    assert text.split() == [str(i) for i in range(10)]
    other.close()


# ── which hosts ─────────────────────────────────────────────────────────────────────────


def test_healthy_hosts_are_picked_and_the_others_told(ssh, server):
    from skyward_nb.pool.pool import Pool
    from skyward_nb.providers.ssh.provider import SSHProvider

    pool = ssh("dead", "one", "dead2", "two", "three", nodes=2)
    assert names(pool) == ["one", "two"]
    assert pool.spec.ssh.hosts[:2] == parse_hosts(["one", "two"])
    events = []
    again = Pool(pool.spec, SSHProvider(), lambda _: None)
    try:
        again.start(events.append)
        (login,) = [each for each in events if isinstance(each, Step) and each.name == "login"]
        assert login.text.startswith("one, two")
        for name in ("dead", "dead2"):
            assert f"not {name}: nothing listens on" in login.text
    finally:
        again.close()


def test_a_host_whose_probe_hangs_holds_up_no_others(ssh, tmp_path, monkeypatch):
    """As where a driver does: what hangs there would not end before the pool is up."""
    end, really = tmp_path / "end", choosing.probe

    async def probe(line):
        if line.name == "bad":
            await line.run(f"trap '' TERM; while [ ! -e {end} ]; do sleep 0.1; done")
        return await really(line)

    monkeypatch.setattr(choosing, "probe", probe)
    try:
        assert names(ssh("bad", "good", nodes=1)) == ["good"]
    finally:
        end.touch()


def test_too_few_hosts_are_an_error_with_each_of_them(ssh):
    with pytest.raises(HostError) as raised:
        ssh("dead", "one", "dead2", nodes=2)
    assert set(raised.value.hosts) == {"dead", "dead2"}
    text = str(raised.value)
    assert "2 of 3 hosts cannot be used, and 2 are needed" in text
    assert "  dead: nothing listens" in text
    with pytest.raises(HostError, match=r"did not start: dead: nothing listens"):
        ssh("dead")


def test_a_host_that_has_not_what_is_asked_for(ssh, tmp_path):
    with pytest.raises(HostNotReady):
        ssh("one", image=Image(interpreter=str(tmp_path / "python")))
    with pytest.raises(HostError) as raised:
        ssh("one", "two", image=Image(interpreter=str(tmp_path / "python")))
    assert str(tmp_path / "python") in str(raised.value)


def readied_by(monkeypatch, hosts):
    """Have hosts made ready by these functions, by name; others as always."""
    really = readying.ready

    async def ready(shell, *words, **options):
        if found := hosts.get(shell.name):
            await found(shell)
        return await really(shell, *words, **options)

    monkeypatch.setattr(readying, "ready", ready)


async def fails(shell):
    raise HostNotReady(shell.name, "its disk is full")


async def goes_on(shell):
    await asyncio.Event().wait()


def test_a_host_that_fails_is_told_while_others_are_readied(ssh, monkeypatch):
    readied_by(monkeypatch, {"bad": fails, "slow": goes_on})
    with pytest.raises(HostError) as raised:
        ssh("slow", "bad")
    assert raised.value.hosts == {"bad": "its disk is full"}


def test_for_a_host_that_fails_another_comes_while_others_are_readied(ssh, monkeypatch):
    came = threading.Event()

    async def waits(shell):
        assert await asyncio.get_running_loop().run_in_executor(None, came.wait, 60)

    async def comes(shell):
        came.set()

    readied_by(monkeypatch, {"bad": fails, "slow": waits, "spare": comes})
    assert names(ssh("slow", "bad", "spare", nodes=2)) == ["slow", "spare"]


def test_a_line_that_is_lost_while_a_host_is_readied_is_made_anew(ssh, server, monkeypatch):
    lost = []

    async def loses(shell):
        if not lost:
            lost.append(shell.name)
            began = asyncio.Event()
            running = asyncio.ensure_future(
                shell.run("echo on >&2; sleep 30", heard=lambda _: began.set())
            )
            await began.wait()
            server.cut()
            await running

    readied_by(monkeypatch, {"two": loses})
    pool = ssh("one", "two")
    assert names(pool) == ["one", "two"]
    said = [word.text for word in kept_of(pool.pool_id, "two")]
    assert any("the line was lost" in text for text in said)


def test_a_line_that_is_lost_while_a_session_begins_is_made_anew(ssh, monkeypatch):
    import asyncssh

    begins, left = asyncssh.SSHClientConnection.create_process, []

    async def reset(connection, *words, **options):
        if left:
            left.pop()
            connection.abort()
            raise ConnectionResetError(104, "Connection reset by peer")
        return await begins(connection, *words, **options)

    async def loses(shell):
        if not lost:
            lost.append(shell.name)
            left.append(shell.name)

    lost = []
    monkeypatch.setattr(asyncssh.SSHClientConnection, "create_process", reset)
    readied_by(monkeypatch, {"two": loses})
    pool = ssh("two")
    assert names(pool) == ["two"] and not left
    assert any("the line was lost" in word.text for word in kept_of(pool.pool_id, "two"))


def test_a_host_that_is_lost_while_it_is_readied_is_that_hosts_fault(ssh, server, monkeypatch):
    from skyward_nb.bootstrap.shell import ShellGone

    async def loses(shell):
        raise ShellGone(f"{shell.name}: the line was lost: cable")

    readied_by(monkeypatch, {"two": loses})
    monkeypatch.setattr(readying, "_PATIENCE", 0.0)
    assert names(ssh("one", "two", "three", nodes=2)) == ["one", "three"]


def test_a_host_that_is_away_at_the_end_is_named(ssh, server):
    pool = ssh("one", idle=3.0)
    server.stop()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        pool.close()
    assert any("one did not say that all of pool" in str(each.message) for each in told)
    # Its agent, which nobody could tell to stop, ends by itself.
    until = time.monotonic() + 60
    while any(runtime_root().glob("*.0")):
        assert time.monotonic() < until
        time.sleep(0.1)


def test_nothing_is_left_of_a_start_that_is_interrupted(ssh, server):
    started = threading.Event()

    def interrupt():
        while not server.connections():
            time.sleep(0.01)
        started.set()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        ssh()
    thread.join()
    assert started.is_set()


# ── what is kept of nodes ───────────────────────────────────────────────────────────────


def kept_of(pool_id, which="all"):
    return node_logs(pool_id, which, list).words


def parts(words):
    return list(dict.fromkeys(word.part for word in words))


def test_how_each_node_was_readied_is_kept(ssh, server):
    pool = ssh("one", "two")
    words = kept_of(pool.pool_id, "1")
    assert {word.host for word in words} == {"two"}
    assert parts(words) == ["login", "machine", "environment", "package", "agent"]
    said = "\n".join(word.text for word in words)
    assert f"{server.user}@127.0.0.1 port {server.port}, after" in said
    assert "it is to be node 1" in said
    for word in (
        f"user {server.user}",
        "Python ",
        "uv",
        "GPU",
        "free: ",
        "of memory",
        "done after",
    ):
        assert word in said
    assert "it listens after" in said
    times = [word.when for word in words]
    assert times == sorted(times)
    assert {word.host for word in kept_of(pool.pool_id, "one")} == {"one"}


def test_what_an_agent_logs_is_fetched_from_a_pool_that_is_up(ssh):
    pool = ssh("one")
    values(pool, "import os\nos.write(2, b'')")
    assert [(log.host, log.nodes) for log in agent_logs(pool.context.generations.machines)] == [
        ("one", (0,))
    ]
    (folder,) = runtime_root().glob(f"{pool.pool_id}.0")
    with (folder / "agent.log").open("a") as log:
        log.write("a word of the agent\n")
    for logs in (agent_logs(pool.context.generations.machines), logs_elsewhere(pool.pool_id)):
        assert [log.text for log in logs] == ["a word of the agent"]
    assert values(pool, "1") == [1]
    pool.close()
    assert logs_elsewhere(pool.pool_id) == []


def test_a_host_that_cannot_be_readied_says_where_all_of_it_is(ssh, tmp_path):
    with pytest.raises(HostNotReady) as raised:
        ssh("one", image=Image(interpreter=str(tmp_path / "python")))
    (note,) = raised.value.__notes__
    found = re.fullmatch(r"all that was said there: %sky logs node=one pool=(default-\w+)", note)
    words = kept_of(found[1])
    assert parts(words) == ["login", "machine", "error"]
    assert str(tmp_path / "python") in words[-1].text + words[-2].text


def test_hosts_that_cannot_be_logged_in_to_say_so_too(ssh):
    with pytest.raises(HostError) as raised:
        ssh("dead", "one", "dead2", nodes=2)
    (note,) = raised.value.__notes__
    found = re.search(r"node=(\S+) pool=(\S+)", note)
    assert sorted(found[1].split(",")) == ["dead", "dead2"]
    words = kept_of(found[2], "dead")
    assert parts(words) == ["login"]
    assert "failed after" in words[0].text and "nothing listens on" in words[0].text


def test_what_an_agent_logged_before_it_died_is_kept(ssh):
    pool = ssh("one")
    (folder,) = runtime_root().glob(f"{pool.pool_id}.0")
    with (folder / "agent.log").open("a") as log:
        log.write("its last words\n")
    psutil.Process(int((folder / "lock").read_text())).kill()
    with pytest.raises(PoolError, match="is gone"):
        values(pool, "1")
    assert [w.text for w in kept_of(pool.pool_id) if w.part == "agent.log"] == ["its last words"]


def test_a_host_that_ends_what_a_login_leaves_is_told(ssh, monkeypatch):
    run = HostLine.run

    async def said_so(line, script, **options):
        ran = await run(line, script, **options)
        return replace(
            ran, out=ran.out.replace(b'"ends_with_login":false', b'"ends_with_login":true')
        )

    monkeypatch.setattr(HostLine, "run", said_so)
    with pytest.warns(UserWarning, match="one ends what a login leaves"):
        assert values(ssh("one"), "1") == [1]
