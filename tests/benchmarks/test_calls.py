"""What it costs to call functions on a pool, beside the peers: `make bench`."""

from __future__ import annotations

import numpy as np
import pytest
from calls import CONTENDERS, half, waits
from contenders import OURS, RANKS
from values import COUNT as NUMBERS

ONE = "f() >> pool, warm, 4 ranks"
MANY = "pool.map of 1,000 small functions, 4 ranks"
MOST = "pool.map of 100,000 small functions, 4 ranks"
WAITS = "pool.map of 1,000 functions of 10 ms, 4 ranks"
ARRAY = "256 MB argument of f(x) @ pool, 4 ranks, first time"
AGAIN = "256 MB argument of f(x) @ pool, 4 ranks, unchanged"
BY_TURNS = [*[OURS, "ray", "joblib-loky"] * 3, "dask"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("who", [*BY_TURNS, "ProcessPoolExecutor"])
@pytest.mark.benchmark(group=ONE)
def test_one(benchmark, who):
    with CONTENDERS[who]() as calls:
        rounds = 100 if who == "dask" else 500
        benchmark.pedantic(calls.one, rounds=rounds, warmup_rounds=50)


def maps(benchmark, who, function, count, **rounds):
    """Time a map over so many numbers, in a pool that has done one."""
    with CONTENDERS[who]() as calls:
        calls.map(half, range(1000))
        values = benchmark.pedantic(calls.map, args=(function, range(count)), **rounds)
        assert list(values) == [number / 2 for number in range(count)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("who", BY_TURNS)
@pytest.mark.benchmark(group=MANY)
def test_many(benchmark, who):
    maps(benchmark, who, half, 1000, rounds=3 if who == "dask" else 10, warmup_rounds=2)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("who", [*[OURS, "joblib-loky", "ProcessPoolExecutor"] * 3, "ray", "dask"])
@pytest.mark.benchmark(group=MOST)
def test_most(benchmark, who):
    """Once each: Ray takes a minute and a half for it, Dask three."""
    maps(benchmark, who, half, 100_000, rounds=1)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("who", [*[OURS, "ray", "joblib-loky", "ProcessPoolExecutor"] * 2, "dask"])
@pytest.mark.benchmark(group=WAITS)
def test_waits(benchmark, who):
    """Four ranks that do nothing else take 2.5 s."""
    maps(benchmark, who, waits, 1000, rounds=2)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("who", [*[OURS, "ray"] * 5, "dask"])
@pytest.mark.benchmark(group=ARRAY)
def test_array(benchmark, who):
    """The first large argument in a new pool."""
    array = np.ones(NUMBERS)
    with CONTENDERS[who]() as calls:
        benchmark.pedantic(calls.total, args=(array,), rounds=1)
        assert calls.total(array) == [array.sum()] * RANKS


@pytest.mark.timeout(300)
@pytest.mark.parametrize("who", [OURS, "ray"] * 3)
@pytest.mark.benchmark(group=AGAIN)
def test_array_again(benchmark, who):
    array = np.ones(NUMBERS)
    with CONTENDERS[who]() as calls:
        benchmark.pedantic(calls.total, args=(array,), rounds=10, warmup_rounds=2)
