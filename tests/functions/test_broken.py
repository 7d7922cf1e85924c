"""What strangers broke once: ends that nobody was told of, and waits that never ended."""

import asyncio
import os
import signal
import threading
import time
import traceback

import pytest
from functions.examples import same, total
from waiting import until

import skyward_nb as sky
from skyward_nb.words.errors import OptionError, PoolError, RankDied


@sky.function
def counting(ends_at, how):
    for number in range(100_000):  # longer than it takes to hear of an end
        if number == ends_at and sky.is_head():
            if how == "dies":
                os._exit(4)
            raise ValueError("in the middle")
        yield number
        time.sleep(0.001)


def test_who_waits_for_a_rank_is_told_when_the_pool_is_closed(no_leaks):
    pool = sky.Compute(nodes=2, quiet=True)
    values = counting(-1, "") >> pool
    assert next(values) == 0  # its rank is held by who reads it, and nobody does
    other = counting(-1, "") >> pool
    next(other)
    ends, future = [], same(1) > pool
    until(future.running)

    def wait(call):
        try:
            ends.append(call())
        except PoolError as error:
            ends.append(str(error))

    calls = [
        lambda: same(1) >> pool,
        lambda: same(1) @ pool,
        lambda: pool.map(same, [1, 2]),
        lambda: (same(1) & same(2)) >> pool,
        future.result,
    ]
    threads = [threading.Thread(target=wait, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    pool.close()
    for thread in threads:
        thread.join(60)
    assert len(ends) == len(calls)
    assert all("is closed" in str(end) for end in ends)


@pytest.mark.parametrize(("how", "error"), [("dies", RankDied), ("raises", ValueError)])
@pytest.mark.parametrize("first", [0, 1])
def test_a_generator_whose_rank_failed_never_seems_to_be_at_its_end(pool, how, error, first):
    every = counting(10, how) @ pool
    for values in (every[first], every[1 - first]):
        with pytest.raises(error):
            list(values)


def test_ranks_are_free_after_a_call_that_could_not_begin(pool):
    @sky.function
    @sky.stdout(only=[5])
    def beyond(_):
        return 1

    @sky.function
    @sky.stdout(only=[5])
    def values(_):
        yield 1

    for begin in (
        lambda: beyond(1) >> pool,
        lambda: values(1) @ pool,
        lambda: (beyond(1) & beyond(2)) >> pool,
        lambda: pool.map(beyond, [1, 2]),
    ):
        with pytest.raises(OptionError, match="only"):
            begin()
        assert (same(1) @ pool) == [1, 1]


def test_an_interrupt_reaches_the_generator_that_is_asked_for_a_value(pool):
    asked = threading.Event()

    def endless():
        yield 1
        asked.set()
        while True:
            time.sleep(60)

    def interrupt():
        asked.wait(60)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        _ = total(endless()) >> pool
    thread.join()
    assert (same(2) @ pool) == [2, 2]


def test_a_generator_argument_may_end_the_program(pool):
    def leaving():
        yield 1
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        _ = total(leaving()) >> pool
    assert (same(2) @ pool) == [2, 2]


def test_a_stopiteration_is_awaited_as_what_python_makes_of_it(no_leaks):
    @sky.function
    def empty():
        return next(iter([]))

    async def main():
        async with sky.Compute(nodes=1, quiet=True) as pool:
            for call in (empty() >> pool, empty() @ pool):
                with pytest.raises(RuntimeError) as caught:
                    await call
                assert isinstance(caught.value.__cause__, StopIteration)
            return await (same(5) >> pool)

    assert asyncio.run(asyncio.wait_for(main(), 60)) == 5


def test_methods_of_builtin_classes_travel(pool):
    assert sky.function(str.upper)("a") >> pool == "A"


class NeverRebuilt(Exception):
    def __new__(cls, *, text):
        return super().__new__(cls, text)

    def __init__(self, *, text):
        super().__init__(text)


@sky.function
def chained(how):
    try:
        try:
            raise NeverRebuilt(text="first")
        finally:
            raise KeyError("inner")
    except KeyError as error:
        if how == "from":
            raise ValueError("bad config") from error
        if how == "from None":
            raise ValueError("bad config") from None
        raise ValueError("bad config")  # noqa: B904 - that is the point


@pytest.mark.parametrize("how", ["from", "from None", "while handled"])
def test_an_exception_comes_with_what_led_to_it(pool, how):
    with pytest.raises(ValueError, match="bad config") as caught:
        _ = chained(how) >> pool
    error = caught.value
    assert error.__suppress_context__ == (how != "while handled")
    cause, context = error.__cause__, error.__context__
    assert (type(cause), type(context)) == {
        "from": (KeyError, type(None)),
        "from None": (type(None), type(None)),
        "while handled": (type(None), KeyError),
    }[how]
    lines = "".join(traceback.format_exception(error))
    assert lines.count('raise KeyError("inner")') == (how != "from None")
    assert lines.count("direct cause") == (how == "from")
    if (before := cause or context) is not None:
        first = before.__context__
        assert isinstance(first, sky.RemoteError)
        assert str(first) == "NeverRebuilt: first"


@sky.function
def around():
    first, second = KeyError(1), KeyError(2)
    first.__context__, second.__context__ = second, first
    raise ValueError("round") from first


def test_what_led_to_an_exception_has_an_end(pool):
    with pytest.raises(ValueError, match="round") as caught:
        _ = around() >> pool
    assert caught.value.__cause__.__context__.__context__ is None


def test_a_pool_that_went_to_a_rank_and_back_says_that_it_is_of_no_use(pool):
    (back,) = same([pool]) >> pool
    with pytest.raises(PoolError, match="was called from one of its own ranks"):
        _ = same(1) >> back
