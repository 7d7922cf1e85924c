"""Machines that are taken back, and others in their place: of pools whose machines are fake."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import pytest
from pools import follow, found, request, values
from providers.wheels import wheel
from tiers import few
from waiting import until

from skyward_nb.options.specs import extended
from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.events import ReclaimNotice, Step
from skyward_nb.providers.fake import FakeMachine, FakeProvider
from skyward_nb.words.errors import LaunchError, NotReplaced, PayloadError, PoolError, StartError
from skyward_nb.words.offers import Bill
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.spec import PoolSpec

np = pytest.importorskip("numpy")

PLACES = """
import os, skyward_nb as sky
info = sky.instance_info()
(info.rank, info.generation, info.world_size, [p.node for p in info.peers], info.head_addr)
"""


@pytest.fixture
def fake(lend):
    """Lends pools of machines that are elsewhere; some have been replaced before."""

    def lend_one(**options):
        return lend(**{"provider": "fake", "on_preempt": "replace", **options})

    return lend_one


def machines(pool):
    return pool.context.generations.machines


def names(pool):
    return [each.name for each in machines(pool)]


def noticed(pool, node):
    """As if the machine had said that it is taken back."""
    link = pool.lines.links[node]
    link.noticed = ReclaimNotice("terminate", "2026-11-22T10:00:00Z")


def ended(pool, node):
    """End the machine, and wait until that is known."""
    machines(pool)[node].take_back()
    until(lambda: pool.look(lambda _: None))


def ran(pool, body, namespace=None, watch=lambda _: None):
    pool.look(lambda _: None)
    return pool.run(request(pool, body, namespace), watch)


@pytest.mark.parametrize("node", few(1, [0, 1]))
def test_a_machine_that_has_ended_is_replaced_for_the_next_cell(fake, node):
    pool = fake(nodes=3)
    name, generation = names(pool)[node], pool.generation
    big = np.arange(400_000)
    values(pool, "made = 5\nint(big.sum())", {"big": big})
    ended(pool, node)
    steps = []
    outcome = ran(pool, PLACES, watch=steps.append)
    assert outcome.lost_before[node].how == f"ended with {name} (it was taken back)"
    assert outcome.names_lost == ["made"]
    (told,) = outcome.pool_lost
    assert told.startswith(f"{name}+ in place of node {node} ({name}): it was taken back; it took ")
    assert [e.nodes for e in steps if isinstance(e, Step) and e.name == "replace" and e.done] == [
        (node,)
    ]
    assert values(pool, PLACES) == [
        (rank, pool.generation, 3, [0, 1, 2], pool.infos[0].head_addr) for rank in range(3)
    ]
    assert pool.generation == generation + 1
    # What the notebook sent is put back, also on the new machine.
    assert (
        values(pool, "int(big.sum()) + len(globals().get('made', ''))", {"big": big})
        == [int(big.sum())] * 3
    )
    assert ran(pool, "1").pool_lost == ()


def test_a_run_that_was_going_on_ends_as_after_any_death(fake):
    pool = fake(nodes=2)
    was = names(pool)
    generation = pool.generation
    gone = []

    def watch(event):
        if not gone and event is not None and "begun" in getattr(event, "text", ""):
            gone.append(event)
            machines(pool)[1].take_back()

    outcome = ran(pool, "import time\nprint('begun')\ntime.sleep(60)", watch=watch)
    assert outcome.lost[1].how == f"ended with {was[1]} (it was taken back)"
    assert outcome.done[0].interrupted and not outcome.began_anew
    assert outcome.pool_lost == (
        f"node 1 ({was[1]}): it was taken back; the next run gets another machine in its place",
    )
    outcome = ran(pool, PLACES)
    assert list(outcome.lost_before) == [1], "it is told again, with all that begins anew"
    assert values(pool, PLACES)[1][:3] == (1, generation + 1, 2)
    assert names(pool) == [was[0], f"{was[1]}+"]


def test_what_will_be_taken_back_is_replaced_before_the_next_cell(fake):
    pool = fake(nodes=2)
    was = names(pool)
    values(pool, "x = 1\nx")
    noticed(pool, 1)
    outcome = ran(pool, "globals().get('x')")
    assert outcome.names_lost == ["x"]
    (lost,) = outcome.lost_before.values()
    assert lost.how == f"ended with {was[1]} (taken back at 2026-11-22T10:00:00Z)"
    assert outcome.pool_lost[0].startswith(
        f"{was[1]}+ in place of node 1 ({was[1]}): taken back at 2026-11-22T10:00:00Z; it took "
    )
    assert names(pool) == [was[0], f"{was[1]}+"]


@pytest.mark.extensive
def test_all_machines_at_once(fake):
    pool = fake(nodes=2)
    was = names(pool)
    for each in machines(pool):
        each.take_back()
    until(lambda: len(pool.look(lambda _: None)) == 2)
    assert [place[0] for place in values(pool, PLACES)] == [0, 1]
    assert names(pool) == [f"{each}+" for each in was]


@pytest.mark.extensive
def test_it_is_replaced_again(fake):
    pool = fake(nodes=2)
    was = names(pool)
    generation = pool.generation
    for number in range(2):
        ended(pool, 1)
        assert [place[1] for place in values(pool, PLACES)] == [generation + number + 1] * 2
    assert names(pool)[1] == f"{was[1]}++"


def test_without_being_asked_the_pool_is_gone(fake):
    pool = fake(nodes=2, on_preempt="tell")
    machines(pool)[1].take_back()
    with pytest.raises(PoolError, match="agent on fake1 is gone: it was taken back"):
        values(pool, "1")


def test_a_machine_that_goes_before_its_agent_is_reached_is_why_a_pool_does_not_start(
    monkeypatch, no_leaks
):
    start_agent = FakeMachine.start_agent

    async def taken_back(machine, *args):
        await start_agent(machine, *args)
        if machine.nodes == (1,):
            machine.take_back()

    monkeypatch.setattr(FakeMachine, "start_agent", taken_back)
    pool = Pool(PoolSpec(provider="fake", nodes=2), FakeProvider(), lambda _: None)
    with pytest.raises(StartError) as raised:
        pool.start(lambda _: None)
    assert raised.value.why == "the machine fake1 has ended (it was taken back)"


def test_where_none_can_be_had_the_pool_stays_as_it_is(fake, monkeypatch):
    pool = fake(nodes=2)
    was = names(pool)
    values(pool, "made = 5\nmade")
    ended(pool, 1)

    async def none(*_):
        raise LaunchError(pool.spec.name, [("c6i.large", "no capacity")])

    with monkeypatch.context() as patched:
        patched.setattr(FakeProvider, "replace", none)
        with pytest.raises(NotReplaced) as raised:
            ran(pool, "1")
    assert raised.value.message == (
        f"pool 'default' lacks node 1 ({was[1]}): it was taken back, and no other could be rented in its place:\n"
        "  c6i.large: no capacity\n"
        "It keeps its other machine (1): the next run tries again, `%sky down pool=default` ends it."
    )
    assert not pool.closed and not pool.is_ready
    outcome = ran(pool, "1")
    assert outcome.names_lost == ["made"] and 1 in outcome.lost_before
    assert len(outcome.done) == 2


def test_names_that_a_machine_still_has_can_be_brought_before_it_goes(fake):
    pool = fake(nodes=2)
    was = names(pool)
    values(pool, "x = 7\nx")
    noticed(pool, 1)
    wish = request(pool, "1")
    pull = type(wish)(cell=None, number=2, namespace={}, ranks=pool.ranks, pull=("x",))
    assert set(pool.run(pull, lambda _: None).done) == {0, 1}
    assert names(pool) == was
    ended(pool, 1)
    with pytest.raises(PoolError, match=r"is not whole: node 1 .* what ranks had is lost"):
        pool.run(pull, lambda _: None)


@pytest.mark.extensive
def test_an_interrupt_leaves_nothing_and_the_next_cell_tries_again(fake):
    pool = fake(nodes=2)
    ended(pool, 1)

    def watch(event):
        if isinstance(event, Step) and event.name == "replace":
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        ran(pool, "1", watch=watch)
    assert not pool.closed
    assert values(pool, "1") == [1, 1]


def test_an_interrupt_as_the_lost_machine_is_let_go_keeps_the_new_one(fake, monkeypatch):
    pool = fake(nodes=2)
    lost, before = machines(pool)[1], names(pool)
    ended(pool, 1)
    release = FakeMachine.release

    async def slowly(machine):
        if machine is lost:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.3)
        await release(machine)

    monkeypatch.setattr(FakeMachine, "release", slowly)
    with pytest.raises(KeyboardInterrupt):
        pool.run(request(pool, "1"), lambda _: None)
    monkeypatch.undo()
    there = names(pool)
    assert there[0] == before[0] and there[1] != before[1]
    assert values(pool, "1") == [1, 1]
    assert names(pool) == there


@pytest.mark.extensive
def test_a_run_whose_ranks_were_begun_anew_before_a_machine_went_comes_to_its_end(
    make, monkeypatch
):
    first = make(provider="fake", on_preempt="replace", nodes=2)
    was, generation = names(first), first.generation
    body = "import os, skyward_nb as sky\nif sky.instance_info().rank: os._exit(3)"
    assert first.run(request(first, body), lambda _: None).began_anew
    first.leave()  # before it said that it had seen that run
    again = found(first)
    there = FakeProvider().find(first.spec, first.pool_id)
    monkeypatch.setattr(FakeProvider, "find", lambda *_: there)
    there[1].take_back()
    again.attach(lambda _: None)
    assert (again.runs.unseen.generation, again.generation) == (generation, generation + 1)
    outcome = follow(again, lambda _: None)
    assert outcome.lost[1].how == f"ended with {was[1]} (it was taken back)"
    assert values(again, "2") == [2, 2]
    again.close()


@pytest.mark.extensive
def test_a_machine_that_goes_meanwhile_ends_such_a_run(fake):
    pool = fake(nodes=2)
    was = names(pool)
    going = pool.begin(request(pool, "import time\ntime.sleep(60)"), lambda _: None)
    going.state.generation -= 1
    machines(pool)[1].take_back()
    outcome = pool.finish(going, lambda _: None)
    assert outcome.lost[1].how == f"ended with {was[1]} (it was taken back)"
    assert outcome.done[0].interrupted


@pytest.mark.parametrize("options", [{"ttl": 3600.0}])
def test_what_is_over_is_not_replaced(fake, options):
    pool = fake(nodes=2, **options)
    pool.context.started -= 3600
    machines(pool)[1].take_back()
    with pytest.raises(PoolError, match="no other is rented: its time is over"):
        values(pool, "1")


def test_machines_that_end_as_a_budget_does_are_not_replaced(fake):
    # They end a minute before it is spent.
    pool = fake(nodes=2)
    pool.context.bill = Bill(dollars=1.0, began=time.time() - 3540, max_cost=1.0)
    machines(pool)[1].take_back()
    with pytest.raises(
        PoolError, match=r"max_cost=1 is spent.* no other is rented: it has cost \$0.9[89]"
    ):
        values(pool, "1")
    assert pool.closed and pool.context.over == (1.0, pytest.approx(0.983, abs=0.01))


def test_a_pool_of_others_replaces_nothing():
    spec = PoolSpec(provider="fake", on_preempt="tell")
    assert Pool(spec, FakeProvider(), lambda _: None).renewal.replacing is None


def ends_while_sending(pool, node, monkeypatch):
    """Have the machine end at the moment when something is to be sent."""
    telling, first = pool.context.stores.telling, pool.generation

    def ends(*what):
        if pool.generation == first:
            machines(pool)[node].take_back()
        return telling(*what)

    monkeypatch.setattr(pool.context.stores, "telling", ends)


@pytest.mark.parametrize("node", few(1, [0, 1]))
def test_a_cell_whose_machine_ends_while_it_is_sent_runs_with_another(fake, monkeypatch, node):
    pool = fake(nodes=2)
    was = names(pool)
    big = np.arange(400_000)
    values(pool, "made = 5\nmade")
    ends_while_sending(pool, node, monkeypatch)
    outcome = ran(pool, "int(big.sum())", {"big": big})
    assert sorted(outcome.done) == [0, 1] and not outcome.lost
    assert outcome.lost_before[node].how == f"ended with {was[node]} (it was taken back)"
    assert outcome.names_lost == ["made"]
    assert names(pool)[node] == f"{was[node]}+"
    assert values(pool, "big.sum()", {"big": big}) == [big.sum()] * 2


def test_who_waits_until_an_end_is_known_can_be_interrupted(fake, monkeypatch):
    pool = fake(nodes=2)
    ends_while_sending(pool, 1, monkeypatch)
    waits = threading.Event()

    def keep_up(watch):
        """As for a line that nobody knows to be cut."""
        waits.set()

    monkeypatch.setattr(pool.lines, "keep_up", keep_up)

    def interrupt():
        assert waits.wait(60)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        pool.run(request(pool, "int(big.sum())", {"big": np.arange(400_000)}), lambda _: None)
    thread.join()
    monkeypatch.undo()
    assert values(pool, "1") == [1, 1]


@pytest.mark.extensive
def test_who_is_interrupted_when_another_machine_has_come_begins_anew_on_it(fake, monkeypatch):
    pool = fake(nodes=2)
    was = names(pool)
    noticed(pool, 1)
    exchange = pool.context.generations.exchange

    def interrupted(gone):
        exchange(gone)
        raise KeyboardInterrupt

    monkeypatch.setattr(pool.context.generations, "exchange", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pool.run(request(pool, "1"), lambda _: None)
    monkeypatch.undo()
    assert not pool.is_ready
    assert values(pool, "1") == [1, 1]
    assert names(pool) == [was[0], f"{was[1]}+"]


def test_ranks_live_on_where_a_machine_cannot_be_replaced_for_new_packages(
    make, monkeypatch, tmp_path
):
    """Packages are there, and a machine is to be replaced before ranks begin anew with them."""
    monkeypatch.setenv("SKYWARD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    wheel(tmp_path / "wheels", "sky-t-one", "1.0")
    pool = make(provider="fake", on_preempt="replace")
    values(pool, "made = 5\nmade")
    pids, spec = pool.pids, pool.spec
    noticed(pool, 1)
    replaces = pool.context.provider.replace

    async def replace(*_):
        raise LaunchError(spec.name, [("c6i.large", "no capacity")])

    monkeypatch.setattr(pool.context.provider, "replace", replace)
    with pytest.raises(NotReplaced) as raised:
        pool.become(extended(spec, PoolOptions(pip=("sky-t-one",))), lambda _: None)
    assert "made" not in "".join(getattr(raised.value, "__notes__", ()))
    assert (pool.spec, pool.pids, pool.is_ready) == (spec, pids, True)
    pool.lines.links[1].noticed = None
    assert values(pool, "made") == [5, 5]
    # A machine that takes the place of one has them from its beginning.
    noticed(pool, 1)
    monkeypatch.setattr(pool.context.provider, "replace", replaces)
    lost = pool.become(extended(spec, PoolOptions(pip=("sky-t-one",))), lambda _: None).lost
    assert lost == ("made",)
    assert values(pool, "import sky_t_one\nsky_t_one.VERSION") == ["1.0"] * 2


def test_what_is_lost_is_told_to_the_next_one_where_a_cell_cannot_begin(fake):
    pool = fake(nodes=2)
    was = names(pool)
    values(pool, "made = 5\nmade")
    ended(pool, 1)
    with pytest.raises(PayloadError):
        ran(pool, "lock", {"lock": threading.Lock()})
    outcome = ran(pool, "1")
    assert outcome.lost_before[1].how == f"ended with {was[1]} (it was taken back)"
    assert outcome.names_lost == ["made"]
