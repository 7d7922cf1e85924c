"""Several runs at once on one pool, each on ranks of its own."""

import threading
import time

import pytest
from pools import request, values
from waiting import until

from skyward_nb.pickling.payload import pack, unpack
from skyward_nb.pool import inbox
from skyward_nb.pool.outcome import RunRequest
from skyward_nb.protocol.events import LeftOut, Output
from skyward_nb.runtime.function_calls import Call
from skyward_nb.words.errors import PoolBusy, PoolError


def call(function, *args, ranks):
    bundle = pack("f()", Call(function, args), to_ranks=True)
    return RunRequest(
        cell=None, number=0, namespace={}, ranks=ranks, call=bundle, value_from=ranks,
        wants_value=True, aside=True,
    )  # fmt: skip


def wait_for(path):
    import os
    import time

    while not os.path.exists(path):  # noqa: PTH110 - sent alone
        time.sleep(0.01)
    return os.getpid()


def touch(path):
    open(path, "w").close()


def value(pool, outcome):
    (end,) = outcome.done.values()
    assert end.failure is None, end.failure
    return unpack(end.value, pool.store)


def test_two_runs_go_on_side_by_side(lend, tmp_path):
    pool = lend()
    path = str(tmp_path / "now")
    waiting = pool.begin(call(wait_for, path, ranks=(0,)), lambda _: None)
    # Were they one after another, this one would never begin.
    pool.run(call(touch, path, ranks=(1,)), lambda _: None)
    assert value(pool, pool.finish(waiting, lambda _: None)) == pool.pids[0]


def test_what_the_notebook_binds_while_ranks_bind_it_is_the_newer(lend, tmp_path):
    """As beside a run in the background."""
    pool, go, names = lend(), tmp_path / "go", {"rate": 0.001}
    body = f"import os, time\nrate, other = 0.5, 0.5\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)"
    going = pool.begin(request(pool, body, names), lambda _: None)
    names["rate"] = names["other"] = 0.0001
    go.touch()
    assert not pool.finish(going, lambda _: None).failed
    assert values(pool, "rate, other", names) == [(0.0001, 0.0001)] * 2
    assert not pool.run(request(pool, "rate = 0.5", names), lambda _: None).failed
    assert values(pool, "rate", names) == [0.5] * 2
    assert (going.had(), going.namespace) == ({}, {}), (
        "a handle of it holds nothing of the notebook"
    )


def test_who_waits_is_woken_by_whoever_listens(lend, tmp_path):
    pool = lend(nodes=4)
    paths = [str(tmp_path / str(number)) for number in range(4)]
    ended = []

    def run(rank):
        going = pool.begin(call(wait_for, paths[rank], ranks=(rank,)), lambda _: None)
        ended.append((rank, value(pool, pool.finish(going, lambda _: None))))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for rank in (2, 0, 3, 1):
        touch(paths[rank])
        threads[rank].join(60)
        assert not threads[rank].is_alive()
    assert [rank for rank, _ in ended] == [2, 0, 3, 1]
    assert dict(ended) == pool.pids


def test_what_is_busy_is_refused(lend, tmp_path):
    pool = lend()
    path = str(tmp_path / "now")
    going = pool.begin(call(wait_for, path, ranks=(0,)), lambda _: None)
    with pytest.raises(PoolBusy):
        pool.begin(call(touch, path, ranks=(0, 1)), lambda _: None)
    with pytest.raises(PoolBusy):  # a cell has the whole pool
        pool.run(request(pool, "1", ranks=(1,)), lambda _: None)
    with pytest.raises(PoolBusy):
        pool.restart(lambda _: None)
    touch(path)
    pool.finish(going, lambda _: None)
    assert values(pool, "1") == [1, 1]


def test_each_hears_its_own(lend):
    pool = lend()
    heard = {0: [], 1: []}

    def shout(word):
        for _ in range(50):
            print(word)

    goings = [
        pool.begin(call(shout, f"rank {rank}", ranks=(rank,)), heard[rank].append)
        for rank in (0, 1)
    ]
    for rank, going in enumerate(goings):
        pool.finish(going, heard[rank].append)
    for rank in (0, 1):
        text = "".join(event.text for event in heard[rank] if hasattr(event, "stream"))
        assert text == f"rank {rank}\n" * 50


def flood(lines):
    for n in range(lines):
        print(f"{n:99}")


def test_what_nobody_takes_in_stays_with_the_agent(lend, tmp_path, monkeypatch):
    monkeypatch.setattr(inbox, "FLOOD", 1_000_000)
    pool = lend()
    path = str(tmp_path / "now")
    heard = []
    going = pool.begin(call(flood, 300_000, ranks=(0,)), heard.append)
    other = threading.Thread(
        target=lambda: pool.run(call(wait_for, path, ranks=(1,)), lambda _: None)
    )
    other.start()
    until(lambda: going.inbox.waiting > 1_000_000)
    most = 0
    until_late = time.monotonic() + 3
    while time.monotonic() < until_late:
        most = max(most, going.inbox.waiting)
        time.sleep(0.05)
    assert most < 15_000_000, "of 30 million"
    touch(path)
    pool.finish(going, heard.append)
    other.join(60)
    assert not other.is_alive()
    said = sum(len(each.text) for each in heard if isinstance(each, Output))
    left_out = sum(each.size for each in heard if isinstance(each, LeftOut))
    assert said + left_out >= 30_000_000
    assert values(pool, "1") == [1, 1]


def test_an_interrupt_is_for_one(lend, tmp_path):
    pool = lend()
    before = pool.generation
    paths = [str(tmp_path / "0"), str(tmp_path / "1")]
    first, second = (
        pool.begin(call(wait_for, path, ranks=(rank,)), lambda _: None)
        for rank, path in enumerate(paths)
    )
    threading.Timer(0.3, pool.interrupt, (first.number,)).start()
    assert pool.finish(first, lambda _: None).interrupted
    touch(paths[1])
    assert value(pool, pool.finish(second, lambda _: None)) == pool.pids[1]
    assert pool.generation == before


def test_a_death_is_one_runs_affair_and_the_next_begins_anew(lend, tmp_path):
    pool = lend()
    before = pool.generation
    path = str(tmp_path / "now")

    def die():
        import os

        os._exit(3)

    waiting = pool.begin(call(wait_for, path, ranks=(0,)), lambda _: None)
    dead = pool.run(call(die, ranks=(1,)), lambda _: None)
    assert list(dead.lost) == [1]
    assert not pool.is_ready
    with pytest.raises(PoolBusy):  # not before the other one is over
        pool.begin(call(touch, path, ranks=(1,)), lambda _: None)
    touch(path)
    outcome = pool.finish(waiting, lambda _: None)
    assert not outcome.lost
    assert outcome.done[0].failure is None
    assert values(pool, "1") == [1, 1]
    assert pool.generation == before + 1


def test_a_pool_that_is_closed_ends_who_waits(lend, tmp_path):
    pool = lend()
    going = pool.begin(call(wait_for, str(tmp_path / "never"), ranks=(0,)), lambda _: None)
    raised = []

    def wait():
        try:
            pool.finish(going, lambda _: None)
        except PoolError as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    pool.close()
    thread.join(60)
    assert "closed" in str(raised[0])
