"""What the panel is told of pools, and what may be done with them: without a browser."""

from __future__ import annotations

import inspect
import os
import re
import signal
import tempfile
from collections.abc import Iterator

import psutil
import pytest
from msgspec.structs import replace
from pools import KILLED, found, request
from waiting import until

from skyward_nb.lab.pool_panel import client_to_interrupt, panel_state, pool_standing, run_output
from skyward_nb.pool import registry
from skyward_nb.pool.registry import PoolEntry
from skyward_nb.protocol.message_parts import Client
from skyward_nb.words.errors import OptionError, PoolError
from skyward_nb.words.offers import Bill
from skyward_nb.words.spec import PoolSpec


@pytest.fixture(autouse=True)
def own_pools(runtime_dir, monkeypatch) -> Iterator[None]:
    """Pools of these tests alone: those of Lab's kernels may end while these run. One that is held up is waited for."""
    monkeypatch.setattr(registry, "_ANSWER", 60.0)
    with tempfile.TemporaryDirectory(prefix="sky-", dir=runtime_dir.parent) as folder:
        monkeypatch.setenv("SKYWARD_RUNTIME_DIR", folder)
        yield


def test_pools_have_handles_kernels_and_ranks(make):
    first, second, _ = make(name="b", nodes=1), make(name="b", nodes=2), make(name="a", nodes=1)
    state = panel_state({os.getpid(): "kernel-7", 1: "kernel-1"})
    assert [each.handle for each in state.pools] == ["a", second.pool_id, first.pool_id]
    assert {each.kernel for each in state.pools} == {"kernel-7"}
    assert all(each.is_asked for each in state.pools)
    assert len(state.pools[1].pool.ranks) == 2
    first.leave()
    # Its agent hears of that a moment later.
    until(lambda: panel_state({os.getpid(): "kernel-7"}).pools[-1].kernel == "")
    left = found(first)
    left.attach(lambda _: None)
    left.close()


def test_a_rank_that_has_ended_is_named(make):
    pool = make(name="mine", nodes=2)
    os.kill(pool.pids[1], signal.SIGKILL)
    (rank,) = until(lambda: [each for each in panel_state({}).pools[0].pool.ranks if each.lost])
    assert (rank.rank, rank.node, rank.process) == (1, 1, None)
    assert re.fullmatch(KILLED, rank.lost)


def test_pools_on_other_machines_are_not_asked(monkeypatch):
    spec = PoolSpec(name="far", provider="ssh", nodes=2)
    bill = Bill(dollars=3.0, began=0.0, max_cost=9.0)
    entry = PoolEntry(pool_id="far-3fa2b1", spec=spec, notebook="a.ipynb", started=5.0, bill=bill)
    registry.enter(entry)
    monkeypatch.setattr(registry, "_connected", lambda _: pytest.fail("a line was opened"))
    (row,) = panel_state({}).pools
    assert (row.handle, row.is_asked, row.pool.ranks) == ("far", False, ())
    assert (row.pool.where, row.pool.cost.most) == ("left on other machines", 9.0)
    me = psutil.Process()
    client = Client(key="", pid=me.pid, host=os.uname().nodename, since=me.create_time())
    registry.enter(replace(entry, client=client))
    (row,) = panel_state({me.pid: "kernel"}).pools
    assert (row.kernel, row.pool.client.process) == ("kernel", me.pid)
    assert client_to_interrupt("far-3fa2b1") == client


def test_what_cannot_be_interrupted_says_why(make):
    pool = make(name="mine", nodes=1)
    with pytest.raises(PoolError, match="nothing runs on pool 'mine'"):
        client_to_interrupt(pool.pool_id)
    with pytest.raises(PoolError, match="pool gone-3fa2b1 is not up any more"):
        client_to_interrupt("gone-3fa2b1")
    assert pool_standing(pool.pool_id).state == "idle"
    with pytest.raises(OptionError, match="not on disk"):
        run_output(pool.pool_id)


def test_a_run_in_the_background_is_told_as_such(make):
    pool = make(name="mine", nodes=1)
    pool.begin(request(pool, "import time; time.sleep(60)", detached=True), lambda _: None)
    entry = pool.entry
    assert until(lambda: (now := registry.condition(entry)) and now.running) == (0,)
    (row,) = panel_state({}).pools
    assert row.pool.run.detached


def test_every_route_asks_who_it_is():
    pytest.importorskip("jupyter_server")
    from skyward_nb.lab.routes import routes

    listed = routes("/base/")
    assert len(listed) == 7
    for path, route in listed:
        assert path.startswith(("/base/skyward/pools", "/base/skyward/runs/"))
        own = [name for name in ("get", "post", "put", "patch", "delete") if name in vars(route)]
        assert own
        for name in own:
            lines = inspect.getsource(vars(route)[name])
            assert "@tornado.web.authenticated\n    @authorized\n" in lines, (path, name)
