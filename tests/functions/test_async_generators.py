"""Generators on a pool in async code: `async for` has their values."""

from __future__ import annotations

import asyncio
import time

import pytest
from functions.examples import same, twice

import skyward_nb as sky


@sky.function
def count(to, seconds=0.0):
    for number in range(to):
        yield number
        time.sleep(seconds)


@sky.function
def fail_after(to):
    yield from range(to)
    raise LookupError(to)


def test_async_for_has_the_values_of_a_generator(no_leaks):
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
