"""Calls on real ranks: what goes on beside one another, and what is left behind."""

import os
import signal
import time

import numpy as np
import pytest

import skyward_nb as sky


@sky.function
def same(value):
    return value


@sky.function
def total(values):
    return sum(values)


@sky.function
def nap(seconds):
    time.sleep(seconds)
    return "rested"


@pytest.fixture
def pool(no_leaks):
    with sky.Compute(nodes=2, quiet=True) as pool:
        yield pool


def test_a_generator_argument_that_fails_stops_its_own_call_alone(pool):
    def failing():
        yield 1
        raise LookupError("at home")

    beside = nap(1.0) > pool
    with pytest.raises(LookupError, match="at home"):
        _ = total(failing()) >> pool
    assert beside.result() == "rested"


def test_an_interrupt_that_comes_once_a_call_has_begun_leaves_its_rank_free(pool, monkeypatch):
    assert same(1) >> pool == 1
    engine = pool._runner.pool
    begin = engine.begin

    def interrupted(*args):
        going = begin(*args)
        os.kill(os.getpid(), signal.SIGINT)
        return going

    monkeypatch.setattr(engine, "begin", interrupted)
    for call in (nap(20) >> pool.head for _ in [0]), sky.gather(nap(20), stream=True) >> pool:
        with pytest.raises(KeyboardInterrupt):
            next(call)
    monkeypatch.undo()
    assert (same(2) @ pool) == [2, 2]


def test_arguments_of_calls_that_are_over_leave_the_store(pool, monkeypatch):
    @sky.function
    def first(array):
        return float(array[0])

    pool.start()
    store = pool._runner.pool.store
    monkeypatch.setattr(store, "_spare", 0)
    arrays = [np.full(1 << 20, float(number)) for number in range(6)]
    for number, array in enumerate(arrays):
        assert first(array) >> pool == number
        assert not os.listdir(store.memory)
    assert pool.map(first, arrays) == [0, 1, 2, 3, 4, 5]
    assert not os.listdir(store.memory)


def test_a_call_that_finds_no_room_is_kept_by_nobody(pool, monkeypatch):
    pool.start()
    engine = pool._runner.pool
    monkeypatch.setattr(engine, "_stowed", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        _ = same(np.zeros(1 << 20)) > pool
    assert not +engine._kept
