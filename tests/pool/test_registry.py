"""Which pools elsewhere are listed, and when they are forgotten."""

import asyncio
import contextlib
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from pools import found

from skyward_nb.node import stack_pipe
from skyward_nb.pool import registry
from skyward_nb.protocol.events import AgentStatus, Stack
from skyward_nb.protocol.frames import frame
from skyward_nb.protocol.message_parts import Client
from skyward_nb.providers.folders import far_root
from skyward_nb.providers.provider_protocol import AgentGone, MachineEnded
from skyward_nb.providers.provider_table import PROVIDERS
from skyward_nb.reports.found_pools import (
    announcement,
    choose,
    forget,
    forgotten,
    others,
    silent,
    unanswered,
)
from skyward_nb.words.errors import PoolError, TakenBack
from skyward_nb.words.offers import Bill
from skyward_nb.words.spec import PoolSpec


class Answers:
    """A machine that answers with this error, or hangs up at once."""

    def __init__(self, node, error, released):
        self.name, self.nodes = f"i-{node + 1}", (node,)
        self._error, self._released = error, released

    async def connect(self):
        if self._error is not None:
            raise self._error
        near, far = socket.socketpair()
        far.close()
        return near

    async def release(self):
        self._released.append(self)

    def leave(self):
        """Nobody is there."""


@pytest.fixture
def answers():
    """What machines of pools answer."""
    return {}


@pytest.fixture
def elsewhere(tmp_path, monkeypatch, answers):
    """Lists pools whose machines answer with these errors; what was released."""
    monkeypatch.setenv("SKYWARD_RUNTIME_DIR", str(tmp_path / "run"))
    released = []

    class Elsewhere:
        shares_files = False

        def find(self, spec, pool_id):
            found = enumerate(answers[pool_id])
            return tuple(Answers(node, error, released) for node, error in found)

    monkeypatch.setitem(PROVIDERS, "fake", Elsewhere)

    def make(pool_id, *errors, client=None, bill=None, **options):
        answers[pool_id] = errors
        spec = PoolSpec(provider="fake", **options)
        registry.enter(
            registry.PoolEntry(
                pool_id=pool_id,
                spec=spec,
                notebook="",
                started=time.time(),
                client=client,
                bill=bill,
            )
        )
        return released

    return make


def listed():
    return {entry.pool_id for entry in registry.entries()}


def aged(seconds):
    for path in far_root().iterdir():
        os.utime(path, (0, time.time() - seconds))


def client(pid, since):
    return Client(key="", pid=pid, host=socket.gethostname(), since=since)


def myself():
    return client(os.getpid(), psutil.Process().create_time())


AWAY = OSError("no route to host")


def test_a_pool_that_is_silent_for_too_long_is_forgotten(elsewhere):
    elsewhere("p-1", AWAY, idle=600.0)
    aged(10_000)
    assert listed() == {"p-1"}, "nobody has asked it so far"
    assert others() == []
    assert listed() == {"p-1"}
    aged(500)
    assert others() == []
    assert listed() == {"p-1"}
    aged(700)
    assert listed() == set()
    assert not [*far_root().iterdir()]


def test_one_that_is_silent_here_and_has_a_client_on_another_host_is_listed_for_a_day(elsewhere):
    """As on the login nodes of a cluster, which share homes: the other one has the key to its machines."""
    there = Client(key="", pid=1, host="login-a", since=1.0)
    elsewhere("p-1", AWAY, idle=600.0, client=there)
    assert others() == []
    aged(10_000)
    assert others() == []
    assert listed() == {"p-1"}
    aged(90_000)
    assert listed() == set()


def test_a_pool_whose_time_is_over_is_forgotten(elsewhere):
    elsewhere("p-1", AWAY, ttl=60.0)
    assert listed() == {"p-1"}
    aged(100)
    assert listed() == set()


def test_a_pool_that_somebody_here_conducts_stays_and_is_not_announced(elsewhere):
    elsewhere("used", AWAY, client=myself(), ttl=60.0)
    elsewhere("left", AWAY, client=client(os.getpid(), 1.0))
    assert others() == []
    aged(10_000)
    assert "pool=left goes on" not in announcement("")
    assert listed() == {"used"}
    registry.left(registry.entries()[0], client(1, 1.0))
    assert listed() == {"used"}
    registry.left(registry.entries()[0], myself())
    assert "pool=used goes on" in announcement("")


def test_a_pool_whose_agents_are_only_just_started_stays(elsewhere):
    """Its machines know nothing of it yet; whoever makes it is a process of this machine."""
    elsewhere("starts", AgentGone(), client=myself())
    elsewhere("gone", AgentGone(), client=client(os.getpid(), 1.0))
    assert others() == []
    assert listed() == {"starts"}


def test_a_pool_that_a_client_of_another_machine_may_only_just_start_stays_for_a_while(elsewhere):
    """Two machines may share a home."""
    elsewhere("starts", AgentGone(), client=Client(key="", pid=1, host="login1", since=1.0))
    assert others() == []
    assert listed() == {"starts"}
    aged(10_000)
    assert others() == []
    assert listed() == set()


def test_an_interrupt_while_machines_are_released_leaves_none(elsewhere, monkeypatch):
    async def release(self):
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.1)
        self._released.append(self)

    monkeypatch.setattr(Answers, "release", release)
    released = elsewhere("p-1", AWAY, AWAY)
    registry.give_up(registry.entries()[0])
    assert len(released) == 2
    assert listed() == set()


def test_clients_that_come_and_go_at_once_are_noted_one_after_another(elsewhere):
    elsewhere("p-1", AWAY)
    (entry,) = registry.entries()

    def comes_and_goes(number):
        for _ in range(100):
            registry.conducted(entry, client(number, 1.0))
            registry.left(entry, client(number, 1.0))

    with ThreadPoolExecutor() as threads:
        assert [*threads.map(comes_and_goes, range(1, 4))] == [None] * 3
    assert [each.client for each in registry.entries()] == [None]
    assert [path.name for path in far_root().iterdir()] == ["p-1.json"]


def test_a_pool_goes_when_all_of_its_machines_say_that_it_is_gone(elsewhere):
    elsewhere("gone", AgentGone(), AgentGone())
    elsewhere("half", AgentGone(), AWAY)
    assert others() == []
    assert listed() == {"half"}


def test_of_a_pool_that_ends_with_a_machine_it_is_said_which_has_ended(elsewhere):
    elsewhere("p-1", MachineEnded("it was taken back"), None, idle=600.0)
    others()
    aged(500)
    (said,) = unanswered(others())
    why = "the machine i-1 has ended (it was taken back)"
    rest = f"is gone: {why}. `%sky down pool=p-1` ends the rest of it now; it ends itself"
    assert rest in said
    with pytest.raises(TakenBack) as raised:
        choose(None, "", [], silent([]))
    assert rest in raised.value.message
    assert (raised.value.pool_id, raised.value.left, raised.value.why) == ("p-1", None, why)
    aged(700)
    assert listed() == set()


def test_of_several_pools_that_do_not_answer_each_is_told_of_as_it_is(elsewhere):
    for pool_id, other in (("p-1", MachineEnded("x")), ("p-2", MachineEnded("y")), ("p-3", AWAY)):
        elsewhere(pool_id, other, None)
    assert others() == []
    with pytest.raises(PoolError) as raised:
        choose(None, "", [], silent([]))
    *gone, away = raised.value.message.splitlines()
    assert sorted(line.partition("; it ends")[0] for line in gone) == [
        f"pool 'default' (p-{number}) is gone: the machine i-1 has ended ({why}). "
        f"`%sky down pool=p-{number}` ends the rest of it now"
        for number, why in ((1, "x"), (2, "y"))
    ]
    assert away.startswith("pool 'default' (p-3) was left on remote machines that cannot be")


def test_a_pool_of_which_it_is_known_later_why_it_is_silent_is_no_younger_for_that(elsewhere):
    elsewhere("p-1", MachineEnded("it was taken back"), None, idle=600.0)
    silence = far_root() / "p-1.silent"
    silence.touch()
    aged(500)
    since = silence.stat().st_mtime
    assert others() == []
    (entry,) = registry.entries()
    assert registry.ended_of(entry) == "the machine i-1 has ended (it was taken back)"
    assert silence.stat().st_mtime == since


@pytest.mark.parametrize("others_know", [True, False])
def test_of_a_pool_it_is_said_anew_which_machines_have_ended(elsewhere, answers, others_know):
    taken, out = MachineEnded("it was taken back"), MachineEnded("out")
    elsewhere("p-1", taken, None, None)
    others()
    aged(500)
    since = (far_root() / "p-1.silent").stat().st_mtime
    answers["p-1"] = (taken, out, None) if others_know else (AWAY, AWAY, None)
    others()
    (entry,) = registry.entries()
    more = " and the machine i-2 has ended (out)" if others_know else ""
    assert registry.ended_of(entry) == f"the machine i-1 has ended (it was taken back){more}"
    assert (far_root() / "p-1.silent").stat().st_mtime == since


def test_a_pool_that_replaces_machines_is_what_its_others_say(elsewhere):
    elsewhere("gone", MachineEnded("x"), MachineEnded("y"), on_preempt="replace")
    elsewhere("half", MachineEnded("x"), None, AWAY, on_preempt="replace")
    elsewhere("there", MachineEnded("x"), None, on_preempt="replace")
    assert others() == [], "who hangs up says nothing"
    assert listed() == {"half", "there"}
    assert [registry.ended_of(entry) for entry in registry.entries()] == ["", ""]


def test_a_pool_that_does_not_answer_can_be_forgotten(elsewhere):
    released = elsewhere("p-1", AWAY, AWAY)
    elsewhere("p-2", AWAY)
    assert ["%sky down pool=p-2" in said for said in unanswered(others())] == [True, False]
    with pytest.raises(PoolError, match="pool=p-2 or pool=p-1"):
        forget("default", [])
    assert forget("p-3", []) is None
    gone = forget("p-1", [])
    assert gone.entry.pool_id == "p-1"
    assert "not all of its machines answered. The others end themselves" in forgotten(gone)
    assert len(released) == 2
    assert listed() == {"p-2"}


@pytest.mark.parametrize("may_run", ["", "i-1"])
def test_of_rented_machines_that_are_forgotten_is_said_whether_they_ended(
    elsewhere, monkeypatch, may_run
):
    async def release(self):
        return may_run

    monkeypatch.setattr(Answers, "release", release)
    elsewhere("p-1", MachineEnded("it was taken back"), AWAY, bill=Bill(dollars=1.0, began=0.0))
    said = forgotten(forget("p-1", []))
    assert said.startswith("pool default is down: what was left of it was ended, ")
    assert said.endswith("but i-1 may run on" if may_run else "nothing left running")
    assert listed() == set()


def test_what_a_killed_kernel_left_of_a_run_goes_with_the_entry(elsewhere):
    elsewhere("p-1", AWAY)
    of_run_7 = (f"p-1.now-7{end}" for end in ("", ".picture", ".asked", ".new99"))
    for name in (*of_run_7, "p-10.now-7"):
        (far_root() / name).touch()
    registry.remove(registry.entries()[0])
    assert [path.name for path in far_root().iterdir()] == ["p-10.now-7"]


def test_who_conducts_a_pool_elsewhere_is_listed(make):
    pool = make(provider="fake", nodes=1)
    (entry,) = registry.entries()
    assert entry.is_used and entry.client.key == ""
    pool.leave()
    (entry,) = registry.entries()
    assert entry.client is None
    again = found(pool)
    again.attach(lambda _: None)
    assert registry.entries()[0].is_used
    again.close()
    assert registry.entries() == []


def test_where_one_machine_does_not_say_where_its_ranks_are_the_others_do(elsewhere, monkeypatch):
    """That agents answer for a rank that is stopped is waited for, and longer than they wait."""
    assert registry._STACKS > stack_pipe._OTHERS_TAKE + stack_pipe._PATIENCE
    monkeypatch.setattr(registry, "_STACKS", 0.1)
    pairs = [socket.socketpair() for _ in range(2)]
    pairs[1][1].sendall(frame(AgentStatus(pid=1, ranks=(1,))) + frame(Stack(1, "there")))

    @contextlib.contextmanager
    def connected(_):
        yield [ours for ours, _ in pairs]

    monkeypatch.setattr(registry, "_connected", connected)
    elsewhere("pool-1", AWAY)
    (entry,) = registry.entries()
    assert registry.stacks(entry, (0, 1)) == {1: "there"}
    for each in (*pairs[0], *pairs[1]):
        each.close()
