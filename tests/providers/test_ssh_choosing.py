"""Which hosts a pool lives on, with a real sshd on loopback: the healthy ones, and others for those that fail."""

import asyncio
import os
import re
import signal
import threading
import time

import pytest
from pools import found, values
from providers.ssh_hosts import RANK, kept_of, names, parts
from sshds import lacks

from skyward_nb.bootstrap.machine_facts import read_facts
from skyward_nb.pool import registry
from skyward_nb.protocol.events import Phase, Step
from skyward_nb.providers.far import host_selection, host_setup
from skyward_nb.words.accelerators import Accelerator
from skyward_nb.words.errors import HostError, HostNotReady, PoolError
from skyward_nb.words.hosts import parse_hosts
from skyward_nb.words.image import Image
from skyward_nb.words.spec import PoolSpec

pytestmark = pytest.mark.skipif(bool(lacks()), reason=lacks())
IS_FOR_POOLS = True


def test_healthy_hosts_are_picked_the_others_told_and_a_pool_is_left_and_found_again(
    ssh, server, monkeypatch
):
    monkeypatch.setattr(host_selection, "_GRACE", 60.0)  # one of them may be held up
    from skyward_nb.pool.pool import Pool
    from skyward_nb.providers.ssh.ssh_provider import SSHProvider

    pool = ssh("dead", "one", "dead2", "two", "three", nodes=2)
    assert names(pool) == ["one", "two"]
    assert pool.spec.ssh.hosts[:2] == parse_hosts(["one", "two"])
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
    end, really = tmp_path / "end", host_selection.probe

    async def probe(line, cache, **options):
        if line.name == "bad":
            await line.run(f"trap '' TERM; while [ ! -e {end} ]; do sleep 0.1; done")
        return await really(line, cache, **options)

    monkeypatch.setattr(host_selection, "probe", probe)
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
    really = host_setup.ready

    async def ready(shell, *words, **options):
        if found := hosts.get(shell.name):
            await found(shell)
        return await really(shell, *words, **options)

    monkeypatch.setattr(host_setup, "ready", ready)


async def fails(shell):
    raise HostNotReady(shell.name, "its disk is full")


async def goes_on(shell):
    await asyncio.Event().wait()


def test_a_host_that_fails_is_told_while_others_are_readied(ssh, monkeypatch):
    readied_by(monkeypatch, {"bad": fails, "slow": goes_on})
    with pytest.raises(HostError) as raised:
        ssh("slow", "bad")
    assert raised.value.hosts == {"bad": "its disk is full"}


@pytest.mark.extensive
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


@pytest.mark.extensive
def test_a_host_that_is_lost_while_it_is_readied_is_that_hosts_fault(ssh, server, monkeypatch):
    from skyward_nb.bootstrap.remote_shell import ShellGone

    async def loses(shell):
        raise ShellGone(f"{shell.name}: the line was lost: cable")

    readied_by(monkeypatch, {"two": loses})
    monkeypatch.setattr(host_setup, "_PATIENCE", 0.0)
    assert names(ssh("two", "three", nodes=1)) == ["three"]


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


class _Rented:
    """A machine whose driver is there at the third look; the two before find none."""

    reaching = "logging in to hosts"
    name = place = "gpu1"

    def __init__(self, shell, ready, script):
        self._shell, self._ready, self.looks = shell, ready, 0
        script(
            f'[ -f {ready} ] && echo "580.82.07, NVIDIA L4" || '
            '{ echo "NVIDIA-SMI has failed: no driver"; exit 9; }'
        )

    async def connect(self):
        pass

    async def run(self, script, *args, **kwargs):
        self.looks += "nvidia-smi" in script
        if self.looks == 3:
            self._ready.touch()
        return await self._shell.run(script, *args, **kwargs)


def _spec(provider):
    return PoolSpec(
        name="gpus", provider=provider, accelerator=Accelerator("L4"), framework=("jax",)
    )


@pytest.fixture
def rented(tmp_path):
    from bootstrap.homes import program, shell_at

    path = f"{tmp_path}/path:{os.environ['PATH']}"
    shell = shell_at(tmp_path / "home", PATH=path)
    return _Rented(
        shell, tmp_path / "ready", lambda text: program(tmp_path / "path", "nvidia-smi", text)
    )


def test_a_machine_with_gpus_gets_builds_for_its_driver():
    facts = read_facts(b"sky=facts\ngpu=580.82.07, NVIDIA L4\nend=facts\n")
    assert "jax[cuda13]" in " ".join(host_setup._image_on(facts, _spec("ssh")).pip)


def test_the_driver_of_a_rented_machine_is_waited_for_and_its_tool_is_quoted(rented, monkeypatch):
    monkeypatch.setattr(host_selection, "_DRIVER_PAUSE", 0)
    told = []
    (found,), faults = asyncio.run(host_selection.choose(_spec("aws"), [rented], told.append))
    assert (found.facts.gpus, rented.looks, faults) == (("NVIDIA L4",), 3, {})
    waits = [
        each.text
        for each in told
        if isinstance(each, Phase) and "waiting for the GPUs" in each.text
    ]
    assert len(waits) == 2
    assert "it has no GPU (nvidia-smi there says: NVIDIA-SMI has failed: no driver" in waits[0]


def test_a_host_of_ones_own_is_not_waited_for(rented):
    with pytest.raises(HostError, match="nvidia-smi there says: NVIDIA-SMI has failed"):
        asyncio.run(host_selection.choose(_spec("ssh"), [rented], lambda _: None))
    assert rented.looks == 1
