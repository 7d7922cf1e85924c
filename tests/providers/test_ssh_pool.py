"""Pools on hosts that one logs in to, with a real sshd on loopback: what becomes of them, and of their lines."""

import os
import secrets
import shutil
import signal
import socket
import time
import warnings
from dataclasses import replace
from functools import partial

import psutil
import pytest
from pools import follow, found, request, values
from providers.ssh_hosts import kept_of, names, parts
from sshds import lacks

from skyward_nb.logs.node_log import agent_logs
from skyward_nb.pickling.payload import unpack
from skyward_nb.protocol.events import Output
from skyward_nb.providers.folders import runtime_root
from skyward_nb.providers.orphans import is_ours
from skyward_nb.providers.ssh.ssh_line import HostLine
from skyward_nb.reports.node_logs import logs_elsewhere
from skyward_nb.words.errors import HostNotReady, PoolError

np = pytest.importorskip("numpy")

pytestmark = pytest.mark.skipif(bool(lacks()), reason=lacks())
IS_FOR_POOLS = True


# ── what runs there ─────────────────────────────────────────────────────────────────────


def test_a_cell_runs_on_each_host_and_how_each_was_readied_is_kept(ssh, server):
    token = secrets.token_hex()  # no other program of this machine was started with it
    pool = ssh("one", "two", "three", env={"API_TOKEN": token})
    where = "import os\n(os.environ['RANK'], os.environ['NODE_RANK'], os.environ['SKYWARD_POOL'])"
    told = values(pool, where)
    assert [(rank, node) for rank, node, _ in told] == [("0", "0"), ("1", "1"), ("2", "2")]
    assert len({folder for _, _, folder in told}) == 3
    assert names(pool) == ["one", "two", "three"]
    # One connection to each host, and one session at a time.
    assert server.logged("Accepted publickey") == 3
    # Variables go there, and are in no list of processes.
    assert values(pool, "import os\nos.environ['API_TOKEN']") == [token] * 3
    words = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
    assert not [each for each in words if token in each]
    how_it_was_readied_is_kept(pool, server)


@pytest.mark.parametrize(
    "by",
    [
        "AllowStreamLocalForwarding",
        pytest.param("DisableForwarding", marks=pytest.mark.extensive),
        pytest.param("restrict", marks=pytest.mark.extensive),
    ],
)
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


def test_an_agent_that_is_gone_is_the_end_of_the_pool_and_what_it_had_logged_is_kept(ssh):
    pool = ssh("one")
    (folder,) = runtime_root().glob(f"{pool.pool_id}.0")
    with (folder / "agent.log").open("a") as log:
        log.write("its last words\n")
    os.kill(int((folder / "lock").read_text()), signal.SIGKILL)
    with pytest.raises(PoolError, match="is gone"):
        values(pool, "1")
    assert pool.closed
    assert [w.text for w in kept_of(pool.pool_id) if w.part == "agent.log"] == ["its last words"]


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


@pytest.mark.extensive
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


def test_a_pool_whose_host_cannot_be_reached_is_not_gone_and_its_runs_go_on_without_us(
    ssh, server, no_leaks
):
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
    body = "import time\nfor i in range(10):\n    print(i)\n    time.sleep(0.05)\n'end'"
    again.look(lambda _: None)
    again.begin(request(again, body, detached=True), lambda _: None)
    again.leave()
    other = found(again)
    events = []
    other.attach(events.append)
    outcome = follow(other, events.append)
    assert unpack(outcome.done[0].value, other.store) == "end"
    text = "".join(e.text for e in events if isinstance(e, Output))
    assert text.split() == [str(i) for i in range(10)]
    other.close()


@pytest.mark.extensive
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


# ── what is kept of nodes ───────────────────────────────────────────────────────────────


def how_it_was_readied_is_kept(pool, server):
    words = kept_of(pool.pool_id, "1")
    assert {word.host for word in words} == {"two"}
    assert parts(words) == ["login", "machine", "environment", "package", "agent"]
    said = "\n".join(word.text for word in words)
    assert f"{server.user}@127.0.0.1 port {server.port}, after" in said
    assert "node 1 is readied" in said
    for word in (
        f"user {server.user}",
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


def test_what_an_agent_logs_is_fetched_from_a_pool_that_is_up_and_gone_it_is_not_found(ssh):
    pool = ssh("one")
    others = [found(pool) for _ in range(3)]
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
    said = []
    for other in others:  # on a busy machine sshd hangs up on a login now and then
        with pytest.raises(PoolError) as raised:
            other.attach(lambda _: None)
        said.append(raised.value.message)
    assert any("is gone" in each for each in said), said


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
