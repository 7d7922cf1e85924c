"""Generators on a pool in async code: `async for` has their values."""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from functions.examples import same, twice, wait_for
from waiting import until

import skyward_nb as sky
from skyward_nb.functions import rank_claims


@sky.function
def count(to, seconds=0.0):
    for number in range(to):
        yield number
        time.sleep(seconds)


@sky.function
@sky.integrations.torch
def needs_torch():
    pass


@sky.function
def fail_after(to):
    yield from range(to)
    raise LookupError(to)


def test_async_for_has_the_values_of_a_generator(no_leaks, monkeypatch):
    monkeypatch.setattr(rank_claims, "_SETTLES", 60.0)

    async def main():
        async with sky.Compute(nodes=2, quiet=True) as pool:
            assert [x async for x in count(200) >> pool] == list(range(200))
            many = [x async for x in count(2) >> pool], [x async for x in count(3) >> pool.node(1)]
            assert many == ([0, 1], [0, 1, 2])

            given = [1]
            later = count_of(given) >> pool
            given.append(2)
            assert [x async for x in later] == [1]  # as it was then

            found = []
            with pytest.raises(LookupError):
                async for x in fail_after(2) >> pool:
                    found.append(x)
            assert found == [0, 1]

            slow = count(2, 600) >> pool.rank(0)
            assert await anext(slow) == 0
            waiting = asyncio.ensure_future(anext(slow))
            assert await (same(1) >> pool.rank(1)) == 1
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await (twice(1) @ pool) == [2, 2]

            async for x in count(10) >> pool:
                if x == 3:
                    break
            assert await (twice(1) @ pool) == [2, 2]
            left = count(10) >> pool
            assert await anext(left) == 0

    asyncio.run(main())


@sky.function
def count_of(values):
    yield from values


def test_what_takes_no_generator_says_what_does(no_leaks):
    async def main():
        async with sky.Compute(quiet=True) as pool:
            for use in (
                lambda: count(3) @ pool,
                lambda: (count(3) & count(3)) >> pool,
                lambda: anext(sky.gather(count(3), stream=True) >> pool),
            ):
                with pytest.raises(
                    TypeError, match=r"for x in count\(...\) >> pool` \(`async for`"
                ):
                    await use()

    asyncio.run(main())


def test_more_tasks_than_threads_that_read_generators_all_come_to_their_end(no_leaks):
    """Threads of the loop's own all waited for ranks, and none was left to read what held these."""

    async def main():
        async with sky.Compute(nodes=2, quiet=True) as pool:

            async def read(number):
                return [x async for x in count(number, 0.01) >> pool]

            found = await asyncio.wait_for(asyncio.gather(*map(read, range(3, 23))), 120)
            assert found == [list(range(number)) for number in range(3, 23)]

    asyncio.run(main())


def test_a_generator_that_is_cancelled_before_it_has_a_rank_takes_none(no_leaks):
    async def main():
        async with sky.Compute(quiet=True) as pool:
            first = count(3) >> pool
            assert await anext(first) == 0
            second = asyncio.ensure_future(anext(count(5) >> pool))
            await asyncio.sleep(0.2)
            assert not second.done(), "another task waits for what this one holds"
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            assert [x async for x in first] == [1, 2]
            assert await (same(1) >> pool) == 1

    asyncio.run(main())


def test_a_task_that_would_wait_for_itself_is_told(no_leaks):
    async def main():
        async with sky.Compute(quiet=True) as pool:
            async for _ in count(3, 600) >> pool:
                with pytest.raises(sky.PoolError, match=r"still used by count\(\)"):
                    await anext(count(3) >> pool)
                with pytest.raises(sky.PoolError, match=r"still used by count\(\)"):
                    await pool.map(same, [1])
                with pytest.raises(sky.PoolError, match=r"still used by count\(\)"):
                    await (needs_torch() >> pool)
                break

    asyncio.run(main())


def test_a_task_may_call_beside_a_generator_that_comes_to_its_end_by_itself(no_leaks, monkeypatch):
    monkeypatch.setattr(rank_claims, "_SETTLES", 60.0)

    async def main():
        async with sky.Compute(quiet=True) as pool:
            found = [(x, await (same(x) >> pool)) async for x in count(3) >> pool]
            assert found == [(0, 0), (1, 1), (2, 2)]

    asyncio.run(main())


def test_a_map_that_is_cancelled_stops(no_leaks):
    async def main():
        async with sky.Compute(nodes=2, quiet=True) as pool:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(pool.map(nap, [0.5] * 1000), 2)
            assert await asyncio.wait_for(same(1) @ pool, 60) == [1, 1]

    asyncio.run(main())


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_task_goes_on_after_a_map_that_was_cancelled(no_leaks, nodes):
    """Its thread still stops what runs, and alone may do that."""

    async def main():
        async with sky.Compute(nodes=nodes, quiet=True) as pool:
            for again in (
                lambda: same(1) >> pool,
                lambda: same(1) @ pool,
                lambda: pool.map(same, [1]),
            ):
                with pytest.raises(asyncio.TimeoutError):
                    async with asyncio.timeout(0.5):
                        await pool.map(nap, [60] * 3)
                found = await again()
                assert found == 1 or set(found) == {1}

    asyncio.run(main())


@contextlib.asynccontextmanager
async def pool_of_a_loop_with_one_thread():
    with ThreadPoolExecutor(1) as its_only_thread:
        asyncio.get_running_loop().set_default_executor(its_only_thread)
        async with sky.Compute(quiet=True) as pool:
            yield pool


def test_a_map_takes_no_thread_of_the_loop_and_may_be_limited(no_leaks, tmp_path):
    begun, go = tmp_path / "begun", tmp_path / "go"

    async def main():
        async with pool_of_a_loop_with_one_thread() as pool:
            going = asyncio.ensure_future(pool.map(wait_for, [go], [1], [begun]))
            await asyncio.to_thread(until, begun.exists)
            go.touch()
            assert await going == [1]
            with pytest.raises(sky.RunTimeout):
                await pool.map(nap, [600], timeout=0.5)

    asyncio.run(main())


def test_a_pool_ends_though_the_threads_of_the_loop_wait_for_its_calls(no_leaks, tmp_path):
    begun, never = tmp_path / "begun", tmp_path / "never"

    async def main():
        async with pool_of_a_loop_with_one_thread() as pool:
            future = wait_for(never, began=begun) > pool
            await asyncio.to_thread(until, begun.exists)
            reads = asyncio.create_task(asyncio.to_thread(future.exception))
            await asyncio.sleep(0)  # it is given to the thread
        assert isinstance(await reads, sky.PoolError)

    asyncio.run(main())


def nap(seconds):
    time.sleep(seconds)
