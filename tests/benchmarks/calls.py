"""Ways to have four processes call functions, ours and the peers', each as its users would.

A contender, once entered, has `one()`, which calls a function of no arguments; `map(function, numbers)`, which
calls one for each of them, and gives the values; and `total(array)`, which gives the sum of an array as each of
four processes sees it. The functions are a script's own, which workers cannot import.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from contenders import OURS, RANKS, Step

import skyward_nb as sky

Map = Callable[[Callable[[int], float], range], Iterable[float]]


def own(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, of the script that runs."""
    script = sys.modules["__main__"]
    own = types.FunctionType(function.__code__, vars(script), function.__name__)
    own.__module__ = script.__name__
    setattr(script, function.__name__, own)
    return own


@own
def one():
    return 1


@own
def half(number):
    return number / 2


@own
def waits(number):
    import time

    time.sleep(0.01)
    return number / 2


@own
def total(array):
    return float(array.sum())


@dataclass
class Calls:
    one: Step
    map: Map
    total: Callable[[np.ndarray], list[float]] | None = None


@contextmanager
def skyward() -> Generator[Calls]:
    """`f() >> pool`, `pool.map` and `f(x) @ pool`."""
    ours, totals = sky.function(one), sky.function(total)
    with sky.Compute(nodes=RANKS, quiet=True) as pool:
        totals(np.ones(2)) @ pool
        yield Calls(
            lambda: ours() >> pool,
            pool.map,
            lambda array: totals(array) @ pool,
        )


@contextmanager
def ray() -> Generator[Calls]:
    """Remote functions and `ray.get`; for the array `ray.put`, and four tasks that get the reference."""
    import ray as engine

    store = 8 * 2**30
    options = {"include_dashboard": False, "logging_level": "ERROR", "log_to_driver": False}
    engine.init(num_cpus=RANKS, object_store_memory=store, **options)
    one_there, total_there = engine.remote(one), engine.remote(total)
    there = {each: engine.remote(each) for each in (half, waits)}

    def totals(array: np.ndarray) -> list[float]:
        reference = engine.put(array)
        return engine.get([total_there.remote(reference) for _ in range(RANKS)])

    totals(np.ones(2))
    try:
        yield Calls(
            lambda: engine.get(one_there.remote()),
            lambda function, numbers: engine.get(
                [there[function].remote(number) for number in numbers]
            ),
            totals,
        )
    finally:
        engine.shutdown()


@contextmanager
def dask() -> Generator[Calls]:
    """`client.submit`, `client.map` and `gather`; for the array `client.scatter`."""
    from dask.distributed import Client, LocalCluster

    cluster = LocalCluster(
        n_workers=RANKS, threads_per_worker=1, dashboard_address=None, silence_logs=50
    )
    client = Client(cluster)
    workers = list(client.scheduler_info()["workers"])

    def totals(array: np.ndarray) -> list[float]:
        data = client.scatter(array, broadcast=True, hash=False)
        return client.gather([client.submit(total, data, workers=w, pure=False) for w in workers])

    totals(np.ones(2))
    try:
        yield Calls(
            lambda: client.submit(one, pure=False).result(),
            lambda function, numbers: client.gather(client.map(function, numbers, pure=False)),
            totals,
        )
    finally:
        client.close()
        cluster.close()


@contextmanager
def joblib() -> Generator[Calls]:
    """A `Parallel` of four loky workers that is kept, with batches as it chooses them."""
    from joblib import Parallel, delayed
    from joblib.externals.loky import get_reusable_executor

    with Parallel(n_jobs=RANKS) as parallel:
        try:
            yield Calls(
                lambda: parallel([delayed(one)()]),
                lambda function, numbers: parallel(delayed(function)(each) for each in numbers),
            )
        finally:
            get_reusable_executor().shutdown(wait=True)


@contextmanager
def executor() -> Generator[Calls]:
    """The standard library's processes, which it forks and knows nothing else of."""
    # An IPython shell of another test may be the script by now.
    for each in (one, half, waits, total):
        setattr(sys.modules["__main__"], each.__name__, each)
    with ProcessPoolExecutor(RANKS) as pool:
        yield Calls(
            lambda: pool.submit(one).result(),
            lambda function, numbers: list(
                pool.map(function, numbers, chunksize=len(numbers) // (4 * RANKS))
            ),
        )


CONTENDERS = {
    OURS: skyward,
    "ray": ray,
    "dask": dask,
    "joblib-loky": joblib,
    "ProcessPoolExecutor": executor,
}
