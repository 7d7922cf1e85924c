"""Ways to have four processes call functions, ours and the peers', each as its users would.

A contender, once entered, has `one()`, which calls a function of no arguments; `many()`, which calls
one for each of `COUNT` numbers, and gives the values; and `total(array)`, which gives the sum of an
array as each of four processes sees it. The functions are a script's own, which workers cannot import.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Generator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from contenders import OURS, RANKS, Step

import skyward_nb as sky

COUNT = 1000


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
def total(array):
    return float(array.sum())


@dataclass
class Calls:
    one: Step
    many: Step
    total: Callable[[np.ndarray], list[float]] | None = None


@contextmanager
def skyward() -> Generator[Calls]:
    """`f() >> pool`, `pool.map` and `f(x) @ pool`."""
    ours, totals = sky.function(one), sky.function(total)
    with sky.Compute(nodes=RANKS, quiet=True) as pool:
        totals(np.ones(2)) @ pool
        yield Calls(
            lambda: ours() >> pool,
            lambda: pool.map(half, range(COUNT)),
            lambda array: totals(array) @ pool,
        )


@contextmanager
def ray() -> Generator[Calls]:
    """Remote functions and `ray.get`; for the array `ray.put`, and four tasks that get the reference."""
    import ray as engine

    store = 8 * 2**30
    options = {"include_dashboard": False, "logging_level": "ERROR", "log_to_driver": False}
    engine.init(num_cpus=RANKS, object_store_memory=store, **options)
    one_there, half_there, total_there = map(engine.remote, (one, half, total))

    def totals(array: np.ndarray) -> list[float]:
        reference = engine.put(array)
        return engine.get([total_there.remote(reference) for _ in range(RANKS)])

    totals(np.ones(2))
    try:
        yield Calls(
            lambda: engine.get(one_there.remote()),
            lambda: engine.get([half_there.remote(number) for number in range(COUNT)]),
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
            lambda: client.gather(client.map(half, range(COUNT), pure=False)),
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
                lambda: parallel(delayed(half)(number) for number in range(COUNT)),
            )
        finally:
            get_reusable_executor().shutdown(wait=True)


@contextmanager
def executor() -> Generator[Calls]:
    """The standard library's processes, which it forks and knows nothing else of."""
    # An IPython shell of another test may be the script by now.
    for each in (one, half, total):
        setattr(sys.modules["__main__"], each.__name__, each)
    with ProcessPoolExecutor(RANKS) as pool:
        yield Calls(
            lambda: pool.submit(one).result(),
            lambda: list(pool.map(half, range(COUNT), chunksize=COUNT // (4 * RANKS))),
        )


CONTENDERS = {
    OURS: skyward,
    "ray": ray,
    "dask": dask,
    "joblib-loky": joblib,
    "ProcessPoolExecutor": executor,
}
