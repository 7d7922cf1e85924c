"""Generators of functions on ranks, and among their arguments: what they wait for, and what waits for them."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from functions.examples import same, total
from waiting import until

import skyward_nb as sky
from skyward_nb.functions import rank_streams
from skyward_nb.protocol.events import ValueWanted
from skyward_nb.protocol.message_parts import Packed


@sky.function
def count(to, seconds=0.0, mark=None):
    for number in range(to):
        if mark is not None:
            mark.write_text(str(number))
        yield number
        time.sleep(seconds)


@sky.function
@sky.silent
def quiet_count(to):
    for number in range(to):
        print(number)
        yield number


@sky.function
@sky.silent
async def echo():
    heard = "nothing"
    while True:
        try:
            heard = yield heard
        except LookupError as error:
            heard = f"caught {error}"


@sky.function
def count_on_each(to):
    yield from range(to)
    if sky.instance_info().rank == 1:
        raise LookupError("on rank 1")


@sky.function
def doubled(values):
    for each in values:
        yield 2 * each


@sky.function
def read_by_threads(first, second):
    with ThreadPoolExecutor(3) as threads:
        ours, theirs, rest = (threads.submit(list, each) for each in (first, second, second))
        return ours.result(), sorted([*theirs.result(), *rest.result()])


def test_threads_read_several_each_its_own_values(pool):
    """As a loader does that prefetches."""
    up, down = (each for each in range(100)), (-1 - each for each in range(100))
    assert read_by_threads(up, down) >> pool == ([*range(100)], [*range(-100, 0)])


def test_one_behind_a_decorator_has_all_its_values(pool):
    assert list(quiet_count(20) >> pool) == list(range(20))


def test_an_asynchronous_one_behind_a_decorator_gets_what_is_sent_and_thrown(pool):
    values = echo() >> pool
    assert [next(values), values.send(5), values.throw(LookupError("6"))] == [
        "nothing",
        5,
        "caught 6",
    ]
    values.close()


def test_a_loop_that_is_left_ends_the_generator_at_its_yield(pool, tmp_path):
    """It had gone on for as many values as it may be ahead: of a training, for so many epochs."""
    mark = tmp_path / "now"
    for number in count(1000, 0.5, mark) >> pool.head:
        if number == 1:
            break
    assert int(mark.read_text()) < 10
    assert same(1) @ pool == [1, 1]


def test_a_generator_argument_that_takes_its_time_holds_no_other_call(pool):
    """Even one that waits for what another call gives: pipelines of two functions are made so."""
    handed, goes_on = [], threading.Event()

    def slowly():
        yield 1
        assert goes_on.wait(60)
        yield 2

    first = threading.Thread(
        target=lambda: handed.append(total(slowly()) >> pool.head), daemon=True
    )
    first.start()
    for _ in range(20):
        assert same(3) >> pool.rank(1) == 3
    assert not handed
    goes_on.set()
    first.join(60)
    assert handed == [3]


def test_what_a_generator_argument_takes_counts_for_no_timeout(pool):
    def slowly():
        yield 1
        pool._runner.pool.context.run_clock._drawing -= 60  # as if that had passed
        yield 2

    beside = rest(60) > pool.rank(1)
    assert total(slowly()).with_timeout(30) >> pool.head == 3
    assert beside.cancel()


@sky.function
def rest(seconds):
    time.sleep(seconds)


def test_an_interrupt_stops_a_stream_that_another_thread_listens_for(pool):
    first, second = count(10**6, 0.05) @ pool
    told = []

    def read():
        try:
            told.extend(second)
        except BaseException as error:
            told.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert until(lambda: len(told) > 2)
    threading.Timer(0.5, signal.raise_signal, (signal.SIGINT,)).start()
    with pytest.raises(KeyboardInterrupt):
        for _ in first:
            """Until the interrupt."""
    thread.join(60)
    assert isinstance(told[-1], KeyboardInterrupt)
    assert same(1) @ pool == [1, 1]


def test_a_function_that_reads_another_ones_values_in_a_thread(pool):
    import queue

    between: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def read():
        for value in count(30) >> pool.head:
            between.put(value)
        between.put(None)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert list(doubled(each for each in iter(between.get, None)) >> pool.rank(1)) == [
        2 * each for each in range(30)
    ]
    thread.join(60)
    assert not thread.is_alive()


def test_streams_that_a_thread_each_reads_raise_what_their_function_did(pool):
    for _ in range(5):
        told = []

        def read(stream, told=told):
            try:
                told.append(list(stream))
            except BaseException as error:
                told.append(error)

        threads = [threading.Thread(target=read, args=(each,)) for each in count_on_each(40) @ pool]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
        errors = [each for each in told if isinstance(each, BaseException)]
        assert errors and all(isinstance(each, LookupError) for each in errors), told
    assert same(1) @ pool == [1, 1]


def test_a_call_that_is_cancelled_while_it_waits_for_a_rank_is_out_of_the_way(pool, tmp_path):
    busy = count(10**6, 0.01) >> pool.head
    assert next(busy) == 0
    waiting = same(1) > pool.head
    slots = pool._runner.claims.slots
    assert until(lambda: slots._queue)
    # Behind it in the queue, for a rank that is free.
    behind = same(2) > pool.rank(1)
    assert not behind.done()
    assert waiting.cancel()
    assert behind.result(60) == 2
    with pytest.raises(CancelledError):
        waiting.result(60)
    assert waiting.cancelled()
    busy.close()


def test_a_value_of_an_argument_leaves_each_machine_when_its_last_rank_has_the_next(monkeypatch):
    class Machine(list):
        drop = list.extend

    machines = [Machine(), Machine()]
    pool = SimpleNamespace(
        context=SimpleNamespace(
            stores=SimpleNamespace(of=lambda ranks: machines[int(ranks[0] > 1)])
        ),
        lines=SimpleNamespace(
            board=SimpleNamespace(outside=lambda **_: contextlib.nullcontext()),
            send=lambda _: None,
        ),
    )
    monkeypatch.setattr(rank_streams, "pack", lambda _, value, salt: value)
    monkeypatch.setattr(rank_streams, "_stowed", lambda _, value, rank: Packed(f"d{value}", 1))
    feeds = rank_streams.Feeds()
    feeds.stand_in(each for each in range(3))
    feeds.begin((0, 1, 2))
    for rank in (0, 2, 1, 0, 2, 1, 0):
        feeds.feed(pool, ValueWanted(1, rank, 0))
    assert machines == [["d0"], ["d0"]]
