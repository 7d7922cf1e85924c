"""Calls on real ranks: what goes on beside one another, and what is left behind."""

import asyncio
import contextlib
import os
import threading
import time
from concurrent.futures import CancelledError

import pytest
from functions.examples import nap, same, total
from waiting import until

import skyward_nb as sky
from skyward_nb.store import blobs

LARGE = 100_000
"""Bytes that go by way of the machine's store, which has what is equal once."""


@sky.function
def zeros():
    return bytes(LARGE)


@sky.function
def zeros_again(times):
    for _ in range(times):
        yield bytes(LARGE)


@sky.function
def lengths(values):
    return [len(each) for each in values]


def test_equal_values_of_calls_beside_one_another_all_come_home(pool):
    """The first one's is dropped once it is here."""
    for _ in range(5):
        assert {each.result() for each in [zeros() > pool for _ in range(6)]} == {bytes(LARGE)}


def test_equal_values_that_ranks_yield_all_come_home(pool):
    both = [*zip(*(zeros_again(4) @ pool), strict=True)]
    assert both == [(bytes(LARGE),) * 2] * 4


def test_equal_values_that_calls_beside_one_another_are_fed_all_arrive(pool):
    for _ in range(5):
        calls = [lengths(bytes(LARGE) for _ in range(4)) > pool for _ in range(4)]
        assert [each.result() for each in calls] == [[LARGE] * 4] * 4


@pytest.fixture
def little_room(monkeypatch):
    """What nobody needs goes at once, as where memory is short."""
    monkeypatch.setattr(blobs, "_UNUSED_AFTER", -1)
    monkeypatch.setattr(blobs, "_MOST_UNUSED", 0)


def test_what_is_yielded_is_there_until_it_is_read(pool, little_room):
    """Its ranks are free once it has ended, for the calls of the loop's body."""
    sizes = [(len(each), len(same(each) >> pool)) for each in zeros_again(3) >> pool]
    assert sizes == [(LARGE, LARGE)] * 3


def test_what_nobody_reads_any_more_goes(pool, little_room):
    values = zeros_again(3) >> pool.head
    next(values)
    values.close()
    assert len(same(bytes(LARGE)) >> pool) == LARGE
    assert not pool._runner.pool.driver.untaken


def test_what_was_returned_is_there_until_its_thread_has_it(pool, little_room, monkeypatch):
    runner = pool._runner
    conclude, came, goes_on = runner._conclude, threading.Event(), threading.Event()

    def late(*given, **more):
        if not came.is_set():
            came.set()
            assert goes_on.wait(60)
        return conclude(*given, **more)

    monkeypatch.setattr(runner, "_conclude", late)
    value = zeros() > pool.head
    assert came.wait(60)
    try:
        assert len(same(bytes(LARGE)) >> pool) == LARGE, "on the other rank"
    finally:
        goes_on.set()
    assert value.result() == bytes(LARGE)


@sky.function
def reads_on(values, goes_on):
    """A thread of this call reads a value when a later call runs."""
    first = next(values)

    def read_later():
        until(goes_on.exists)
        with contextlib.suppress(ConnectionError):
            next(values)

    threading.Thread(target=read_later, daemon=True).start()
    return first


@sky.function
def reads_all(values, goes_on):
    first = next(values)
    goes_on.touch()
    time.sleep(0.2)
    return [first, *values]


def test_a_thread_that_outlives_its_call_gets_nothing_of_a_later_one(pool, tmp_path):
    goes_on = tmp_path / "on"
    assert reads_on((each for each in range(3)), goes_on) >> pool.head == 0
    assert reads_all((each for each in range(5, 9)), goes_on) >> pool.head == [5, 6, 7, 8]
    assert same(1) @ pool == [1, 1]


@sky.function
def last(values):
    for each in values:
        kept = each
        time.sleep(0 if sky.is_head() else 0.2)
    return kept if sky.is_head() else None


def test_a_value_that_was_fed_and_comes_back_is_not_taken_for_the_one_that_was_fed(pool):
    """The head is done with it before the other rank asks for more."""
    assert last(bytes(LARGE) for _ in range(2)) @ pool == [bytes(LARGE), None]


def test_a_generator_argument_that_fails_stops_its_own_call_alone(pool):
    def failing():
        yield 1
        raise LookupError("at home")

    beside = nap(1.0) > pool
    with pytest.raises(LookupError, match="at home"):
        _ = total(failing()) >> pool
    assert beside.result() == "rested"


@sky.function
def says_later():
    threading.Timer(0.2, print, ("said late",)).start()


def test_what_a_call_prints_late_is_not_in_the_picture_of_one_that_goes_on(pool):
    beside = nap(60) > pool
    displays, state = pool._runner._stage.displays, pool._runner.pool.context.state
    until(lambda: state.runs)
    first = state.last_run
    _ = says_later() >> pool
    until(lambda: "said late" in repr(displays.view_of(first + 1).entries))
    assert "said late" not in repr(displays.view_of(first).entries)
    beside.cancel()
    with pytest.raises(CancelledError):
        beside.result()


SWALLOWS = """
import os, pathlib, time
import skyward_nb as sky
if "COMPUTE_POOL" in os.environ:
    try:
        pathlib.Path({begun!r}).touch()
        time.sleep(60)
    except BaseException:
        pass

@sky.function
def rest(): time.sleep(600)
"""


def test_an_interrupt_that_an_import_swallows_is_not_lost(pool, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    begun = tmp_path / "begun"
    (tmp_path / "swallows_it.py").write_text(SWALLOWS.format(begun=str(begun)))
    import swallows_it  # pyright: ignore[reportMissingImports]

    before = process() @ pool
    future = swallows_it.rest() > pool.head
    until(begun.exists)
    future.cancel()
    with pytest.raises(CancelledError):
        future.result()
    assert process() @ pool == before, "none had to be killed"


@sky.function
def process():
    return os.getpid()


def test_arguments_of_calls_that_are_over_leave_the_store(pool, monkeypatch):
    np = pytest.importorskip("numpy")

    @sky.function
    def first(array):
        return float(array[0])

    pool.start()
    store = pool._runner.pool.store
    monkeypatch.setattr(store, "_spare", 0)
    arrays = [np.full(1 << 20, float(number)) for number in range(6)]
    for number, array in enumerate(arrays):
        assert first(array) >> pool == number
        assert not list(store.memory.iterdir())
    assert pool.map(first, arrays) == [0, 1, 2, 3, 4, 5]
    assert not list(store.memory.iterdir())


def test_a_call_that_finds_no_room_is_kept_by_nobody(pool, monkeypatch):
    np = pytest.importorskip("numpy")
    pool.start()
    engine = pool._runner.pool
    monkeypatch.setattr(engine.store, "put", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        _ = same(np.zeros(1 << 20)) > pool
    assert not engine.context.stores.kept


@sky.function
def rank():
    return sky.instance_info().rank


def test_calls_side_by_side_run_on_the_ranks_that_are_meant(pool):
    assert (rank() & rank()) >> pool.rank(1) == (1, 1)
    assert sky.gather(rank(), rank()) >> pool.node(1) == (1, 1)
    assert list(sky.gather(rank(), stream=True) >> pool.rank(1)) == [1]
    assert ((rank() & rank()) > pool.rank(1)).result() == (1, 1)


@sky.function
def fail():
    raise LookupError


def test_of_what_is_awaited_together_one_that_fails_stops_the_others(no_leaks):
    async def main():
        async with sky.Compute(nodes=2, quiet=True) as pool:
            with pytest.raises(LookupError):
                await ((nap(600) & fail()) >> pool)
            # On a busy machine the one that was stopped may have been killed: ranks begin anew once nothing runs.
            assert await (rank() @ pool) == [0, 1]
            async for value in sky.gather(nap(600), same(1), stream=True) >> pool:
                assert value == 1
                break
            assert await ((rank() & rank()) >> pool.rank(1)) == (1, 1)

    asyncio.run(main())


def test_a_map_takes_async_functions(pool):
    async def twice(number):
        await asyncio.sleep(0)
        return 2 * number

    assert pool.map(twice, range(5)) == [0, 2, 4, 6, 8]
    with pytest.raises(ZeroDivisionError) as caught:
        pool.map(sky.function(divide), [1, 0])
    assert "item 1 of the map" in caught.value.__notes__


async def divide(number):
    return 1 // number
