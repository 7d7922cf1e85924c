"""What `%sky down` ends, and `%sky cost` knows, and what they say of that, without a kernel."""

from __future__ import annotations

import os
import signal
import time
import warnings

import pytest
from IPython.core.interactiveshell import InteractiveShell
from pools import found, request
from tiers import few

from skyward_nb.notebook import pools
from skyward_nb.notebook.session import Session
from skyward_nb.notebook.verbs import do
from skyward_nb.pickling import home_namespace
from skyward_nb.pool import registry
from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.events import Phase
from skyward_nb.providers.fake import FakeMachine
from skyward_nb.words.errors import PoolError
from skyward_nb.words.offers import Bill


@pytest.fixture
def session():
    before = home_namespace.home()
    shell = InteractiveShell()
    made = Session(shell)
    yield made
    made.pools.close()
    shell.history_manager.end_session()
    home_namespace.set_home(before)


@pytest.fixture
def entered(session, make):
    """Makes pools of the session."""

    def make_one(**options):
        pool = make(**options)
        session.pools._enter(pool)
        return pool

    return make_one


def cut_off(pool):
    """A line is cut, and the person does not wait for it."""
    pool.context.generations.machines[1].cut()

    def watch(event):
        if isinstance(event, Phase) and "fake1" in event.text:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(PoolError, match="`%sky down` gives it up"):
        pool.run(request(pool, "import time; time.sleep(60)"), watch)


def test_a_pool_that_an_interrupt_keeps_from_its_end_is_ended_later(session, entered, monkeypatch):
    """As the last that its ranks said is shown."""
    pool = entered(nodes=1)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(session.pools, "look", interrupted)
        do(session, "down")
    assert not pool.closed
    do(session, "down")
    assert pool.closed
    assert registry.entries() == []


@pytest.mark.parametrize(
    "place", ["skyward_nb.logs.node_log.NodeLog.close", "skyward_nb.notebook.pools.Pools._enter"]
)
def test_an_interrupt_just_as_a_pool_is_up_leaves_nothing(session, no_leaks, monkeypatch, place):
    def interrupted(*_):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(place, interrupted)
    with pytest.raises(KeyboardInterrupt):
        do(session, "up nodes=1")
    assert registry.entries() == []
    assert not [*session.pools]


def test_a_pool_whose_end_is_interrupted_before_it_begins_can_be_ended_again(
    session, entered, monkeypatch
):
    pool, other = entered(nodes=1, name="one"), entered(nodes=1, name="two")

    def interrupted(*_, **__):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(Pool, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.pools.close()
    assert [*session.pools] == ["one"]
    assert other.closed
    session.pools.close()
    assert pool.closed


def test_pools_end_also_where_the_end_of_another_fails(session, entered, monkeypatch):
    first, second = entered(nodes=1, name="one"), entered(nodes=1, name="two")
    first.closing.before_close.append(lambda: 1 / 0)
    looked = []
    monkeypatch.setattr(pools, "others", lambda wanted: looked.append(wanted) or [])
    with pytest.raises(ZeroDivisionError):
        session.pools.close()
    assert first.closed
    assert second.closed
    assert looked, "an earlier kernel of this notebook may have left some, too"


@pytest.mark.parametrize(
    ("before", "line"),
    few(1, [([], "down"), (["status"], "down pool=default"), ([], "down pool={id}")]),
)
def test_a_pool_that_was_cut_off_is_ended(session, entered, capsys, line, before):
    pool = entered(provider="fake", heartbeat=0.2)
    cut_off(pool)
    for each in before:
        do(session, each)
    assert [entry.pool_id for entry in registry.entries()] == [pool.pool_id]
    do(session, line.format(id=pool.pool_id))
    assert "pool default is down: 2 ranks ended" in capsys.readouterr().out
    assert registry.entries() == []
    assert not any(each.folders.runtime.exists() for each in pool.context.generations.machines)
    do(session, "down")
    assert capsys.readouterr().out == "no pool is up\n"


@pytest.mark.extensive
def test_of_a_pool_that_was_cut_off_is_told_what_may_run_on(session, entered, capsys, monkeypatch):
    pool = entered(provider="fake", heartbeat=0.2)
    cut_off(pool)
    release = FakeMachine.release

    async def may_run(machine):
        await release(machine)
        return machine.name

    monkeypatch.setattr(FakeMachine, "release", may_run)
    do(session, "down")
    said = capsys.readouterr().out
    assert said == "pool default is down: 2 ranks ended; fake0, fake1 may run on\n"


@pytest.mark.extensive
def test_costs_are_told_of_a_pool_that_is_named_by_its_id(session, entered, make, capsys):
    bill = Bill(dollars=1.0, began=time.time(), what="1 × c6i.large")
    own = entered(provider="fake", nodes=1)
    left = make(provider="fake", nodes=1)
    for each in (own, left):
        each.context.bill = bill
        registry.enter(each.entry)
    left.leave()
    do(session, "cost")
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == [
        "default",
        left.pool_id,
    ]
    for pool, label in ((own, "default"), (left, left.pool_id)):
        do(session, f"cost pool={pool.pool_id}")
        (line,) = capsys.readouterr().out.splitlines()
        assert line.startswith(f"{label}: ")
    with pytest.raises(PoolError, match="there is no pool 'default-x'"):
        do(session, "cost pool=default-x")
    again = found(left)
    again.attach(lambda _: None)
    again.close()


def warns(monkeypatch, *, fails=False):
    """Have machines warn when they are released, and fail then."""
    release = FakeMachine.release

    async def warned(machine):
        await release(machine)
        warnings.warn(f"{machine.name} may be there", stacklevel=2)
        if fails:
            warnings.warn("something else", RuntimeWarning, stacklevel=2)
            raise OSError("no more")

    monkeypatch.setattr(FakeMachine, "release", warned)


def test_what_machines_warn_of_stands_below(session, entered, capsys, monkeypatch):
    entered(provider="fake", nodes=1)
    warns(monkeypatch)
    do(session, "down")
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("pool default is down: ") and last == "fake0 may be there"


@pytest.mark.extensive
def test_what_machines_warn_of_is_told_also_where_it_comes_to_an_error(
    session, entered, capsys, monkeypatch
):
    entered(provider="fake", nodes=1)
    warns(monkeypatch, fails=True)
    with (
        pytest.warns(RuntimeWarning, match="something else"),
        pytest.raises(OSError, match="no more"),
    ):
        do(session, "down")
    assert capsys.readouterr().out == "fake0 may be there\n"


@pytest.mark.extensive
def test_what_machines_of_a_forgotten_pool_warn_of_stands_below(session, make, capsys, monkeypatch):
    pool = make(provider="fake", nodes=1)
    pool.leave()
    warns(monkeypatch)

    async def connect(machine):
        raise OSError("no route to host")

    monkeypatch.setattr(FakeMachine, "connect", connect)
    do(session, f"down pool={pool.pool_id}")
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("pool default is forgotten: ")
    assert said[1:] == ["fake0 may be there"]
