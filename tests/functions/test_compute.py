"""Pools of functions: where calls run, what goes on at once, and what becomes of ranks that die."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from concurrent.futures import CancelledError

import pytest
from functions.examples import place, slowly, twice, wait_for
from leaks import leaves_nothing

import skyward_nb as sky
from skyward_nb.pool.pool import Pool
from skyward_nb.reports.execution import Execution


@sky.function
def pid():
    return os.getpid()


@sky.function
def leave(code=3):
    os._exit(code)


@sky.function
def fail(why):
    raise ValueError(why)


@pytest.fixture(scope="module")
def shared():
    with leaves_nothing(), sky.Compute(nodes=2, ranks_per_node=2, quiet=True, grace=20) as pool:
        yield pool


@pytest.fixture
def pool(shared):
    """A pool of two nodes with two ranks each, in which nothing runs."""
    yield shared
    assert place() @ shared == [(0, 0), (0, 1), (1, 2), (1, 3)]


# ── where ───────────────────────────────────────────────────────────────────────────────


def test_at_is_every_rank_in_rank_order_and_the_other_is_one(pool):
    assert place() @ pool == [(0, 0), (0, 1), (1, 2), (1, 3)]
    assert place() >> pool in [(0, 0), (0, 1), (1, 2), (1, 3)]


def test_values_are_in_rank_order_whoever_is_first(pool):
    @sky.function
    def backwards():
        rank = sky.instance_info().rank
        time.sleep(0.1 * (3 - rank))
        return rank

    assert backwards() @ pool == [0, 1, 2, 3]


def test_a_node_a_rank_and_the_head_are_targets(pool):
    assert place() @ pool.node(1) == [(1, 2), (1, 3)]
    assert (place() >> pool.node(1))[0] == 1
    assert place() >> pool.rank(3) == (1, 3)
    assert place() >> pool.head == (0, 0)
    assert (place() > pool.rank(2)).result() == (1, 2)
    assert ((place() & place()) >> pool.node(1)) in [((1, 2), (1, 3)), ((1, 3), (1, 2))]
    assert sky.gather(*[place() for _ in range(3)]) >> pool.head == ((0, 0),) * 3
    assert set(sky.gather(place(), place(), stream=True) >> pool.node(0)) == {(0, 0), (0, 1)}
    assert ((place() & place()) > pool.rank(1)).result() == ((0, 1), (0, 1))
    with pytest.raises(IndexError, match="has nodes 0-1, and no node 2"):
        pool.node(2)
    with pytest.raises(IndexError, match="has ranks 0-3, and no rank 4"):
        pool.rank(4)


def test_one_goes_to_the_least_busy_node(pool, tmp_path):
    with_first = wait_for(tmp_path / "now", "first", tmp_path / "began") > pool.rank(0)
    try:
        assert _until((tmp_path / "began").exists)
        assert (place() >> pool)[0] == 1
    finally:
        (tmp_path / "now").touch()
    assert with_first.result() == "first"


# ── at once ─────────────────────────────────────────────────────────────────────────────


def test_more_calls_than_ranks_take_turns(pool):
    futures = [slowly(number, 0.05) > pool for number in range(12)]
    assert [future.result() for future in futures] == list(range(12))


def test_many_short_ones_again_and_again(pool):
    for _ in range(20):
        futures = [slowly(number, 0.005) > pool for number in range(8)]
        assert [future.result() for future in futures] == list(range(8))


def test_threads_use_one_pool(pool):
    found = {}

    def work(number):
        for turn in range(5):
            found[number, turn] = (twice(number) >> pool, twice(turn) @ pool)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {(n, t): (2 * n, [2 * t] * 4) for n in range(4) for t in range(5)}


def test_each_call_is_shown_with_the_number_of_its_own_run(pool, monkeypatch):
    begin, begin_shown, seen = Pool.begin, Execution.begin, []

    def after_another(of, *args):
        if not seen:
            seen.append(None)
            (twice(1) > pool.rank(1)).result()
        return begin(of, *args)

    def shown(execution, *args):
        begin_shown(execution, *args)
        seen.append((execution.display.first_run, execution.run.number))

    monkeypatch.setattr(Pool, "begin", after_another)
    monkeypatch.setattr(Execution, "begin", shown)
    assert (twice(2) > pool.rank(0)).result() == 4
    _, other, late = seen
    assert other[0] == other[1] < late[0] == late[1]


def test_a_stream_gives_values_as_calls_end_and_its_reader_may_call_meanwhile(pool, tmp_path):
    paths = [tmp_path / str(number) for number in range(4)]
    stream = sky.gather(*map(wait_for, paths, range(4)), stream=True) >> pool
    for number in (3, 2, 1, 0):
        paths[number].touch()
        assert next(stream) == number
    assert list(stream) == []
    calls = [slowly(number, 0.02) for number in range(12)]
    found = [(one, twice(one) >> pool) for one in sky.gather(*calls, stream=True) >> pool]
    assert sorted(found) == [(number, 2 * number) for number in range(12)]


def test_two_streams_are_read_in_turns(pool):
    streams = [
        sky.gather(*[slowly((which, number), 0.02) for number in range(6)], stream=True) >> pool
        for which in "ab"
    ]
    found = [next(streams[turn % 2]) for turn in range(12)]
    assert sorted(found) == [(which, number) for which in "ab" for number in range(6)]


def test_a_stream_that_is_left_stops_what_runs(pool):
    for one in sky.gather(slowly("quick", 0.1), slowly("slow", 3600), stream=True) >> pool:
        assert one == "quick"
        break
    assert place() @ pool


def test_one_that_fails_stops_those_beside_it(pool):
    with pytest.raises(ValueError, match="no") as error:
        (slowly(1, 60) & fail("no")) >> pool
    assert "raised on rank" in error.value.__notes__[0]


def test_arguments_are_taken_when_the_call_is_sent(pool):
    values = [1, 2]
    blocked = [slowly(None, 0.3) > pool.rank(0), twice(values) > pool.rank(0)]
    values.append(3)
    assert blocked[1].result() == [1, 2, 1, 2]
    assert blocked[0].result() is None


def test_map_keeps_the_order_and_says_which_item_failed(pool):
    assert pool.map(twice, range(100)) == [2 * x for x in range(100)]
    assert pool.map(lambda x, y: x + y, [1, 2], [10, 20]) == [11, 22]
    assert pool.map(twice, []) == []
    with pytest.raises(ZeroDivisionError) as error:
        pool.map(lambda x: 1 // x, [3, 2, 0, 1])
    assert "item 2 of the map" in error.value.__notes__
    with pytest.raises(ValueError, match="longer"):
        pool.map(lambda x, y: x + y, [1, 2], [10, 20, 30])


# ── futures ─────────────────────────────────────────────────────────────────────────────


def test_a_future_that_runs_is_cancelled_on_its_rank(pool):
    future = slowly(1, 60) > pool
    assert _until(future.running)
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result()
    assert future.cancelled()
    assert not future.cancel()


def test_a_future_that_waits_is_cancelled_before_it_runs(pool, tmp_path):
    before = [wait_for(tmp_path / "now", number) > pool for number in range(4)]
    waiting = slowly("never") > pool
    assert waiting.cancel()
    assert waiting.cancelled()
    (tmp_path / "now").touch()
    assert [each.result() for each in before] == [0, 1, 2, 3]


def test_a_future_has_what_the_call_raised(pool, tmp_path):
    future = fail("far away") > pool
    assert isinstance(future.exception(), ValueError)
    waiting = wait_for(tmp_path / "now", 1) > pool
    with pytest.raises(TimeoutError):
        waiting.result(timeout=0.05)
    (tmp_path / "now").touch()
    assert waiting.result() == 1
    both = (twice(1) & fail("of two")) > pool
    with pytest.raises(ValueError, match="of two"):
        both.result()


def test_of_calls_of_which_one_cannot_be_made_none_goes_on(pool, tmp_path):
    with pytest.raises(sky.PayloadError):
        _ = (wait_for(tmp_path / "never", 1) & twice(threading.Lock())) > pool
    assert twice(1) @ pool == [2] * 4, "no rank waits"


def test_time_that_is_over_is_told_and_the_rank_goes_on(pool):
    before = pid() @ pool
    with pytest.raises(sky.RunTimeout, match=r"after 3 s rank 0 was in .*time\.sleep"):
        slowly(1, 60).with_timeout(3) >> pool
    assert pid() @ pool == before


# ── ranks that die ──────────────────────────────────────────────────────────────────────


def test_a_rank_that_dies_is_told_and_the_next_call_works(pool):
    with pytest.raises(sky.RankDied, match="rank 2 exited with code 5"):
        leave(5) >> pool.rank(2)
    assert twice(1) @ pool == [2] * 4


def test_what_runs_beside_a_death_goes_on(pool, tmp_path):
    beside = wait_for(tmp_path / "now", "still here", tmp_path / "began") > pool.rank(0)
    try:
        assert _until((tmp_path / "began").exists)
        with pytest.raises(sky.RankDied) as error:
            leave() >> pool.rank(3)
        assert "started anew once what runs on the others has ended" in str(error.value)
        after = twice(4) > pool.rank(3)
    finally:
        (tmp_path / "now").touch()
    assert beside.result() == "still here"
    assert after.result() == 8


@pytest.mark.extensive
def test_all_ranks_die_at_once(pool):
    with pytest.raises(sky.RankDied, match="exited with code 3"):
        leave() @ pool
    assert twice(1) @ pool == [2] * 4


def test_some_of_many_die_and_the_others_give_their_values(pool):
    calls = [leave() if number % 3 == 2 else slowly(number, 0.02) for number in range(12)]
    futures = [call > pool for call in calls]
    for number, future in enumerate(futures):
        if number % 3 == 2:
            assert isinstance(future.exception(), sky.RankDied)
        else:
            assert future.result() == number


def unread(pool):
    """What agents have sent that nobody has read yet."""
    found = b""
    for descriptor in pool._runner.pool.lines.sockets():
        with socket.socket(fileno=os.dup(descriptor)) as line:
            if select.select([line], [], [], 0)[0]:
                found += line.recv(1 << 16, socket.MSG_PEEK)
    return found


def test_a_rank_that_is_killed_between_calls_is_told_of(pool, capfd):
    os.kill((pid() @ pool)[1], signal.SIGKILL)
    with sky.Compute(quiet=False) as other:
        victim = pid() >> other
        os.kill(victim, signal.SIGKILL)
        # A call that begins before this is heard of fails: its rank is lost while it runs.
        assert _until(lambda: b"RankLost" in unread(other))
        assert pid() >> other != victim
        assert _until(lambda: b"RankLost" in unread(pool))
    assert "killed by SIGKILL" in capfd.readouterr().err


def test_a_death_among_a_streams_calls_ends_it(pool):
    with pytest.raises(sky.RankDied):
        list(sky.gather(slowly(1, 60), leave(), stream=True) >> pool)


# ── within ranks and children ────────────────────────────────────────────────────────────


def test_a_rank_cannot_use_the_pool_that_it_is_of(pool):
    @sky.function
    def recursive():
        return twice(1) >> pool

    with pytest.raises(sky.PoolError, match="was called from one of its own ranks"):
        recursive() >> pool


def test_functions_call_one_another_on_ranks(pool):
    @sky.function
    def outer(x):
        return [twice.local(x), twice(x).local()]

    assert outer(3) >> pool == [6, 6]


def test_a_forked_child_has_no_pool(pool):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            twice(1) >> pool
        except sky.PoolError as error:
            os.write(writing, str(error).encode())
        pool.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert b"make a pool of its own here" in os.read(reading, 1000)
    os.close(reading)
    os.close(writing)
    assert twice(1) >> pool == 2


def _until(holds, seconds=60):
    until = time.monotonic() + seconds
    while not (held := holds()) and time.monotonic() < until:
        time.sleep(0.01)
    return held
