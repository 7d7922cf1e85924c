"""Pools whose machines share no files with this one: the same engine, by way of lines alone."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading

import psutil
import pytest
from pools import follow, found, request, values
from tiers import few
from waiting import until

from skyward_nb.pickling.payload import unpack
from skyward_nb.pool import generations, machine_stores, reachability, registry
from skyward_nb.pool.link import Link
from skyward_nb.pool.pool import Pool
from skyward_nb.pool.reachability import MachinesUnreachable
from skyward_nb.protocol.events import Hello, Output, Phase
from skyward_nb.providers.fake import FakeMachine, FakeProvider
from skyward_nb.providers.folders import far_root
from skyward_nb.store.blobs import digest_of
from skyward_nb.store.remote_store import RemoteStore
from skyward_nb.words.errors import (
    BudgetSpent,
    MissingDependency,
    PayloadError,
    PoolError,
    StartError,
)
from skyward_nb.words.offers import Bill
from skyward_nb.words.spec import PoolSpec

np = pytest.importorskip("numpy")

RANK = "import os, time\nrank = int(os.environ['RANK'])\n"


@pytest.fixture
def fake(make):
    """Makes pools of machines that are elsewhere, which are closed after the test."""

    def make_one(**options):
        return make(**{"provider": "fake", "nodes": 3, **options})

    return make_one


@pytest.fixture
def three(lend):
    """Lends such pools of three machines."""

    def lend_one(**options):
        return lend(provider="fake", nodes=3, **options)

    return lend_one


def is_listed(pool):
    return pool.pool_id in {entry.pool_id for entry in registry.entries()}


def machines(pool):
    return pool.context.generations.machines


def stored(machine):
    found = [path.name for path in machine.folders.store.iterdir()]
    return [name for name in found if not name.startswith(".part-")]


def said(events):
    found = {}
    for event in events:
        if isinstance(event, Output):
            found[event.rank] = found.get(event.rank, "") + event.text
    return found


def test_a_cell_runs_on_machines_of_their_own(three):
    pool = three()
    where = "import os\n(os.environ['RANK'], os.environ['NODE_RANK'], os.environ['SKYWARD_POOL'])"
    told = values(pool, where)
    assert [(rank, node) for rank, node, _ in told] == [("0", "0"), ("1", "1"), ("2", "2")]
    assert len({folder for _, _, folder in told}) == 3


def test_several_ranks_of_each_machine(fake):
    pool = fake(nodes=2, ranks_per_node=3)
    where = "import os\n(os.environ['RANK'], os.environ['NODE_RANK'], os.environ['LOCAL_RANK'])"
    assert values(pool, where) == [(str(i), str(i // 3), str(i % 3)) for i in range(6)]


def test_large_values_go_there_and_come_back_and_are_forgotten(three):
    pool = three()
    there = {name for machine in machines(pool) for name in stored(machine)}
    namespace = {"big": np.arange(3_000_000)}
    assert values(pool, "big.sum()", namespace) == [namespace["big"].sum()] * 3
    kept = [{*stored(machine)} - there for machine in machines(pool)]
    assert kept == [kept[0]] * 3
    assert len(kept[0]) == 1
    body = f"{RANK}import numpy as np\nnp.full(2_000_000, rank)"
    outcome = pool.run(request(pool, body), lambda _: None)
    for rank, end in outcome.done.items():
        assert end.value.data is None, "it goes by way of the store"
        assert (unpack(end.value, pool.store) == rank).all()
    pool.clean(outcome)
    # What was forgotten is so before anything else is done.
    pool.store.put(digest_of([b"x"]), [b"x"])
    there = {name for machine in machines(pool) for name in stored(machine)}
    assert there.isdisjoint(end.value.digest for end in outcome.done.values())


def test_a_large_value_goes_over_one_line(three):
    pool = three()
    values(pool, "1")
    before = sum(machine.carried for machine in machines(pool))
    big = np.frombuffer(os.urandom(8_000_000), "u1")
    assert values(pool, "int(big[-1])", {"big": big}) == [big[-1]] * 3
    assert sum(machine.carried for machine in machines(pool)) - before < 1.05 * big.nbytes


@pytest.mark.extensive
def test_all_machines_whose_agents_do_not_start_are_told_of(fake, monkeypatch):
    start = FakeMachine.start_agent

    async def start_one(machine, *args):
        if machine.name == "fake1":
            return await start(machine, *args)
        raise StartError("main", f"{machine.name} is full", f"words of {machine.name}")

    monkeypatch.setattr(FakeMachine, "start_agent", start_one)
    with pytest.raises(StartError, match="fake0 is full; fake2 is full") as raised:
        fake()
    assert raised.value.detail == "words of fake0\nwords of fake2"


@pytest.mark.extensive
def test_machines_that_do_not_reach_one_another_may_stand_alone(fake, monkeypatch):
    def never(*_):
        raise MachinesUnreachable("gpu2 has no address of a private network")

    monkeypatch.setattr(reachability, "shared_endpoints", never)
    with pytest.raises(StartError, match=r"no address of a private .*Options\(cluster=False\)"):
        fake(nodes=2)
    pool = fake(nodes=2, cluster=False)
    assert values(pool, "import os\nos.environ['WORLD_SIZE']") == ["1", "1"]
    before = [machine.carried for machine in machines(pool)]
    big = np.frombuffer(os.urandom(3_000_000), "u1")
    assert values(pool, "int(big[-1])", {"big": big}) == [big[-1]] * 2
    after = [machine.carried for machine in machines(pool)]
    assert all(late - early > big.nbytes for early, late in zip(before, after, strict=True))


def test_what_is_for_some_ranks_goes_to_their_machines_alone(three):
    pool = three()
    before = [{*stored(machine)} for machine in machines(pool)]
    namespace = {"big": np.arange(500_000)}
    outcome = pool.run(request(pool, "big.sum()", namespace, ranks=(1,)), lambda _: None)
    assert unpack(outcome.done[1].value, pool.store) == namespace["big"].sum()
    after = [{*stored(machine)} for machine in machines(pool)]
    assert [len(now - then) for now, then in zip(after, before, strict=True)] == [0, 1, 0]


def test_a_failure_stops_the_others(three, tmp_path):
    pool = three()
    body = (
        f"{RANK}open(f'{tmp_path}/{{rank}}', 'w').close()\nif rank == 1:\n"
        f"    while len(os.listdir({str(tmp_path)!r})) < 3: time.sleep(0.01)\n"
        "    raise ValueError('no')\ntime.sleep(60)"
    )
    outcome = pool.run(request(pool, body), lambda _: None)
    assert [end.rank for end in outcome.failed] == [1]
    assert not outcome.lost
    assert values(pool, "rank") == [0, 1, 2]


def test_a_death_on_one_machine_begins_all_anew(three):
    pool = three()
    body = f"{RANK}kept = 1\nif rank == 2: os._exit(9)\ntime.sleep(60)"
    outcome = pool.run(request(pool, body), lambda _: None)
    assert outcome.lost[2].how == "exited with code 9"
    assert outcome.began_anew
    assert values(pool, "'kept' in globals()") == [False] * 3
    os.kill(pool.pids[0], signal.SIGKILL)
    until(lambda: pool.look(lambda _: None))
    assert values(pool, "1") == [1, 1, 1]


def test_an_interrupt_reaches_all_machines(three):
    pool = three()
    heard = []

    def watch(event):
        heard.append(event)
        if isinstance(event, Output) and len(said(heard)) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    body = f"{RANK}kept = 1\nprint('here', end='', flush=True)\ntime.sleep(60)"
    outcome = pool.run(request(pool, body), watch)
    assert outcome.interrupted
    assert values(pool, "kept") == [1, 1, 1]


def test_generations(three):
    pool = three()
    first = pool.generation
    for generation in range(first + 1, first + 4):
        pool.restart(lambda _: None)
        assert pool.generation == generation
    assert values(pool, "__import__('skyward_nb').instance_info().generation") == [first + 3] * 3


def test_an_agent_that_is_killed_is_the_end_of_all(three):
    pool = three()
    others = [machine._here._agent.pid for machine in machines(pool)]
    os.kill(others[1], signal.SIGKILL)
    with pytest.raises(PoolError, match="the agent on fake1 is gone"):
        pool.run(request(pool, f"{RANK}time.sleep(60)"), lambda _: None)
    assert pool.closed
    until(lambda: not any(psutil.pid_exists(pid) for pid in others))
    assert not is_listed(pool)


@pytest.mark.parametrize("how", few(1, ["cut", "freeze"]))
def test_lines_that_are_cut_in_a_run_go_on_where_they_were(three, how, tmp_path):
    pool = three(heartbeat=0.2)
    go = tmp_path / "go"  # else all may be over before anybody here has heard of it
    counts = (
        f"{RANK}for i in range(150):\n    print(i, flush=True)\n    time.sleep(0.01)\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\n'end'"
    )
    heard, cut = [], []

    def hear(event):
        heard.append(event)
        if isinstance(event, Output) and event.rank == 1 and "20\n" in event.text and not cut:
            cut.append(getattr(machines(pool)[1], how)())
        # Once it is told, however late that is.
        if cut and isinstance(event, Phase) and "fake1" in event.text:
            machines(pool)[1].mend()
            go.touch()

    def give_up():
        given_up.append(True)
        machines(pool)[1].mend()
        go.touch()

    given_up = []
    guard = threading.Timer(60, give_up)
    guard.start()
    try:
        outcome = pool.run(request(pool, counts), hear)
    finally:
        guard.cancel()
    assert not given_up, f"not told in 60 s that fake1 is cut off: {said(heard)}"
    assert [unpack(end.value, pool.store) for end in outcome.done.values()] == ["end"] * 3
    counted = "".join(f"{i}\n" for i in range(150))
    assert said(heard) == {0: counted, 1: counted, 2: counted}
    assert any(isinstance(event, Phase) and "fake1" in event.text for event in heard)


def test_the_others_are_heard_while_one_cannot_be_reached(three, monkeypatch, tmp_path):
    pool = three(heartbeat=0.2)
    go = tmp_path / "go"  # else all may be over before the third is cut off
    slow = (
        f"{RANK}for i in range(30):\n    print(i, flush=True)\n    time.sleep(0.02)\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.01)"
    )
    heard = []
    machine = machines(pool)[2]
    reach = machine.connect

    async def slowly():
        import asyncio

        await asyncio.to_thread(until, lambda: said(heard).get(0, "").endswith("29\n"))
        heard.append("reached")
        go.touch()
        return await reach()

    monkeypatch.setattr(machine, "connect", slowly)

    def hear(event):
        heard.append(event)
        if isinstance(event, Output) and event.rank == 2 and "3\n" in event.text:
            machine.cut()
            machine.mend()

    pool.run(request(pool, slow), hear)
    before = heard[: heard.index("reached")]
    assert said(before)[0].endswith("29\n"), "it was heard before the third was reached"
    assert said(heard)[2].endswith("29\n")


def test_values_outlast_a_line_that_is_cut_under_them(three):
    pool = three()
    big = np.frombuffer(os.urandom(30_000_000), "u1")
    machine, state = machines(pool)[1], iter(range(12))

    def hear(event):
        if event is None and next(state, None) == 3:
            machine.cut()
            threading.Timer(0.4, machine.mend).start()

    outcome = pool.run(request(pool, "big", {"big": big}), hear)
    for end in outcome.done.values():
        assert (unpack(end.value, pool.store) == big).all()


@pytest.mark.extensive
def test_a_result_that_cannot_be_brought_is_there_for_whoever_attaches(fake):
    first = fake(nodes=2)
    outcome = first.run(request(first, f"{RANK}bytes(3_000_000 + rank)"), lambda _: None)
    cut = machines(first)[1]
    assert cut.store().patience == first.spec.idle
    cut.store().patience = 0.3
    cut.cut()
    back = {rank: end.value for rank, end in outcome.done.items()}
    with pytest.raises(PoolError, match=r"no way to fake1 .*`%sky attach` brings it back"):
        first.sending.bring(back, lambda _: None)
    assert first.closed
    second = found(first)
    second.attach(lambda _: None)
    outcome = follow(second, lambda _: None)
    second.sending.bring({rank: end.value for rank, end in outcome.done.items()}, lambda _: None)
    for rank, end in outcome.done.items():
        assert len(unpack(end.value, second.store)) == 3_000_000 + rank
    second.close()


def test_a_machine_without_room_is_told_and_nothing_is_left(three, monkeypatch):
    pool = three()
    full = machines(pool)[1].store()
    before = [{*stored(machine)} for machine in machines(pool)]
    lacks = RemoteStore.lacks

    def lacking(store, *args):
        if store is full:
            raise OSError(28, "it is 4 MB, and there are 0 B free in memory")
        return lacks(store, *args)

    monkeypatch.setattr(RemoteStore, "lacks", lacking)
    with pytest.raises(PayloadError, match="does not fit on the ranks' machine"):
        pool.run(request(pool, "big.sum()", {"big": np.ones(500_000)}), lambda _: None)
    monkeypatch.undo()
    assert values(pool, "1") == [1, 1, 1]
    assert values(pool, "small.sum()", {"small": np.ones(50_000)}) == [50_000] * 3
    after = [{*stored(machine)} for machine in machines(pool)]
    assert [len(now - then) for now, then in zip(after, before, strict=True)] == [1, 1, 1]


def test_another_client_goes_on_with_a_run(fake, tmp_path):
    first = fake()
    waits = f"while not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)"
    body = (
        f"{RANK}for i in range(100):\n    print(i, flush=True)\n    time.sleep(0.01)\n{waits}\nrank"
    )
    first.begin(request(first, body), lambda _: None)
    until(lambda: (now := registry.condition(first.entry)) and now.running == (0, 1, 2))
    first.leave()
    until(lambda: registry.condition(first.entry).client is None)
    now = registry.condition(first.entry)
    assert now.ranks == (0, 1, 2)
    second = found(first)
    second.attach(lambda _: None)
    (tmp_path / "go").touch()
    heard = []
    outcome = follow(second, heard.append)
    assert [unpack(end.value, second.store) for _, end in sorted(outcome.done.items())] == [0, 1, 2]
    assert said(heard) == dict.fromkeys(range(3), "".join(f"{i}\n" for i in range(100)))
    assert values(second, "i") == [99] * 3
    assert (far_root() / f"{first.pool_id}.json").exists()
    second.close()
    assert not is_listed(first)


@pytest.mark.extensive
def test_a_run_that_some_machines_never_heard_of_ends(fake, monkeypatch):
    first = fake()
    link = first.lines.links[2]
    monkeypatch.setattr(link, "flush", lambda: None)
    begun = first.begin(request(first, f"{RANK}print('on')\ntime.sleep(0.2)"), lambda _: None)
    on = set()

    def hear(_, event):
        if isinstance(event, Output):
            on.add(event.rank)

    # An agent that has not read of it when its client goes has not heard of it either.
    first.runs.await_any((begun,), hear, lambda: on == {0, 1})
    first.leave()
    second = found(first)
    second.attach(lambda _: None)
    outcome = follow(second, lambda _: None)
    assert "never began" in outcome.lost[2].how
    assert values(second, "1") == [1, 1, 1]
    second.close()


def test_a_run_whose_end_was_seen_on_some_machines_is_not_followed(fake, monkeypatch):
    first = fake()
    first.run(request(first, "1"), lambda _: None)
    monkeypatch.setattr(first.lines.links[0], "flush", lambda: None)
    first.seen()
    first.leave()

    def attached():
        """Who attaches before an agent has read that is told of the run again."""
        pool = found(first)
        pool.attach(lambda _: None)
        if pool.runs.unseen is None:
            return pool
        pool.leave()
        until(lambda: registry.condition(first.entry).client is None)
        return None

    until(lambda: registry.condition(first.entry).client is None)
    second = until(attached)
    assert values(second, "2") == [2, 2, 2]
    second.close()


@pytest.mark.extensive
def test_the_work_in_which_a_pool_ends_for_its_budget_says_so_and_names_what_is_lost(fake):
    pool = fake(nodes=2)
    values(pool, "kept = 5\n1")

    def spent_and_gone(event):
        if isinstance(event, Output):
            pool.context.bill = Bill(dollars=1.0, began=0.0, max_cost=1.0)
            machines(pool)[1].take_back()

    for _ in range(2):
        with pytest.raises(BudgetSpent) as raised:
            pool.run(request(pool, "import time\nprint(1)\ntime.sleep(60)"), spent_and_gone)
        assert "max_cost=1 is spent, and its machines end then" in raised.value.message
        assert "lost with it: kept. No other is rented in its place" in raised.value.message


def test_a_pool_that_is_gone_is_listed_no_more(fake):
    first = fake(nodes=2, idle=2)
    entry = first.entry
    assert is_listed(first)
    first.leave()
    until(lambda: registry.condition(entry) is None and not is_listed(first))


def test_a_line_that_ends_before_its_first_word_is_opened_again(fake, monkeypatch):
    connect, ended = FakeMachine.connect, []

    async def ends_at_once(machine):
        if len(ended) == 2:
            return await connect(machine)
        near, far = socket.socketpair()
        far.close()
        ended.append(machine)
        return near

    monkeypatch.setattr(FakeMachine, "connect", ends_at_once)
    pool = fake(nodes=2)
    assert len(ended) == 2
    assert values(pool, "1") == [1, 1]


def test_an_agent_that_greets_twice_is_not_taken_for_two(fake, monkeypatch):
    first = fake(nodes=2)
    assert values(first, "kept = 5\nkept") == [5, 5]
    first.leave()
    until(lambda: registry.condition(first.entry).client is None)
    connect, read, greeted, silent = FakeMachine.connect, Link.read, [], []

    async def one_is_silent(machine):
        if machine.name == "fake0" or len(greeted) > 1:
            return await connect(machine)
        near, far = socket.socketpair()
        silent.append(far)
        return near

    def read_and_cut(link):
        found = read(link)
        if any(isinstance(event, Hello) for event in found):
            greeted.append(link.machine)
            if len(greeted) == 1:
                link._socket.shutdown(socket.SHUT_RD)
            for far in silent if len(greeted) == 2 else ():
                far.close()
        return found

    monkeypatch.setattr(FakeMachine, "connect", one_is_silent)
    monkeypatch.setattr(Link, "read", read_and_cut)
    second = found(first)
    second.attach(lambda _: None)
    assert greeted == ["fake0", "fake0", "fake1"]
    assert values(second, "kept") == [5, 5]
    second.close()


def test_an_agent_that_ends_before_its_client_is_there_is_said_to_be_gone(fake, monkeypatch):
    connect = FakeMachine.connect

    async def comes_late(machine):
        near = await connect(machine)
        machine.take_back()
        return near

    monkeypatch.setattr(FakeMachine, "connect", comes_late)
    with pytest.raises(PoolError, match=r"the agent on .* is gone|has ended"):
        fake(nodes=1)


def test_stacks_of_ranks_on_all_machines(three):
    pool = three()
    going = pool.begin(request(pool, f"{RANK}time.sleep(60)"), lambda _: None)
    until(lambda: (now := registry.condition(pool.entry)) and now.running == (0, 1, 2))

    def told():
        """A rank that is held up may not say in time where it is."""
        found = registry.stacks(pool.entry, (0, 1, 2))
        return [rank for rank, text in sorted(found.items()) if "File" in text]

    until(lambda: told() == [0, 1, 2])
    pool.interrupt()
    assert pool.finish(going, lambda _: None).interrupted


@pytest.mark.extensive
def test_large_values_on_a_slow_line_go_in_streams_and_are_told_of(fake, monkeypatch):
    monkeypatch.setattr(machine_stores, "_TELL", 0.0)
    pool = fake(nodes=1)
    machine = machines(pool)[0]
    machine.delay = 0.03
    big = np.frombuffer(os.urandom(12_000_000), "u1")
    told = []
    outcome = pool.run(request(pool, "big", {"big": big}), told.append)
    pool.sending.bring({0: outcome.done[0].value}, told.append)
    assert (unpack(outcome.done[0].value, pool.store) == big).all()
    assert machine.store().window.delay >= 0.06
    phases = [event.text for event in told if isinstance(event, Phase)]
    for doing in ("sending 12 MB", "gathering 12 MB of rank 0"):
        assert doing in phases
        sizes = [re.fullmatch(rf"{doing}; (.+) went over the line so far", text) for text in phases]
        assert any(sizes), phases


def test_what_is_installed_here_counts_for_this_machine_alone(monkeypatch):
    class Checked(Exception):
        """As far as it shall come."""

    class Elsewhere(FakeProvider):
        def check(self, spec):
            raise Checked

    class Here(Elsewhere):
        shares_files = True

    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    spec = PoolSpec(provider="fake", framework=("torch",))
    with pytest.raises(MissingDependency):
        Pool(spec, Here(), lambda _: None).start(lambda _: None)
    with pytest.raises(Checked):
        Pool(spec, Elsewhere(), lambda _: None).start(lambda _: None)


PORT = "import os\nint(os.environ['MASTER_PORT'])"


def a_port_that_nobody_is_given():
    """One that is free, below those that the system gives away; each process of tests begins elsewhere."""
    for port in range(20_000 + os.getpid() % 8_000, 30_000):
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError("no port is free")


@pytest.mark.extensive
def test_the_port_of_the_rendezvous_is_the_usual_one_where_it_is_free(fake, monkeypatch):
    assert generations._RENDEZVOUS_PORT == 29500
    usual = a_port_that_nobody_is_given()
    # Other pools of this machine come and go, and have the usual one.
    monkeypatch.setattr(generations, "_RENDEZVOUS_PORT", usual)
    first = fake(nodes=1)
    assert values(first, PORT) == [usual]
    second = fake(nodes=1, name="second")
    (other,) = values(second, PORT)
    assert other not in (0, usual)
    bound = f"s = __import__('socket').socket()\ns.setsockopt(1, 2, 1)\ns.bind(('127.0.0.1', {usual}))\ns.listen()\n1"
    assert values(first, bound) == [1]
