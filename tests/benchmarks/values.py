"""Ways to bring an array to four processes and back, ours and the peers', each as its users would.

A contender, once entered, has `read(array)`, which gives the sum of the array as each process
sees it, and `back()`, which gives one array of 256 MB made by each.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from contenders import OURS, RANKS, Step, shell

MEGABYTES = 256
COUNT = MEGABYTES * 2**20 // 8


@dataclass
class Values:
    read: Any
    back: Step


def total(array: np.ndarray) -> float:
    return float(array.sum())


def make(count: int) -> np.ndarray:
    return np.ones(count)


@contextmanager
def skyward() -> Generator[Values]:
    """Cells that read a name of the notebook, and that end with an array."""
    ip = shell()
    ip.run_line_magic("load_ext", "skyward_nb")
    line = f"nodes={RANKS} quiet"
    ip.user_ns["np"] = np

    def read(array: np.ndarray) -> list[float]:
        ip.user_ns["array"] = array
        return list(ip.run_cell_magic("sky_remote", line, "float(array.sum())"))

    def back() -> object:
        return ip.run_cell_magic("sky_remote", line, f"np.ones({COUNT})")

    ip.run_cell_magic("sky_remote", line, "np.ones(2).sum();")
    try:
        yield Values(read, back)
    finally:
        with contextlib.redirect_stdout(io.StringIO()):
            ip.run_line_magic("sky", "down")


@contextmanager
def ray() -> Generator[Values]:
    """`ray.put`, and four actors that get the reference."""
    import ray as engine

    store = 8 * 2**30
    options = {"include_dashboard": False, "logging_level": "ERROR", "log_to_driver": False}
    engine.init(num_cpus=RANKS, object_store_memory=store, **options)

    @engine.remote(num_cpus=1)
    class Worker:
        def total(self, array: np.ndarray) -> float:
            return total(array)

        def make(self, count: int) -> np.ndarray:
            return make(count)

    workers = [Worker.remote() for _ in range(RANKS)]

    def read(array: np.ndarray) -> list[float]:
        reference = engine.put(array)
        return engine.get([worker.total.remote(reference) for worker in workers])

    def back() -> object:
        return engine.get([worker.make.remote(COUNT) for worker in workers])

    read(np.ones(2))
    try:
        yield Values(read, back)
    finally:
        engine.shutdown()


@contextmanager
def dask() -> Generator[Values]:
    """`client.scatter` to four workers, and results gathered."""
    from dask.distributed import Client, LocalCluster

    cluster = LocalCluster(
        n_workers=RANKS, threads_per_worker=1, dashboard_address=None, silence_logs=50
    )
    client = Client(cluster)
    workers = list(client.scheduler_info()["workers"])

    def read(array: np.ndarray) -> list[float]:
        data = client.scatter(array, broadcast=True, hash=False)
        return client.gather([client.submit(total, data, workers=w, pure=False) for w in workers])

    def back() -> object:
        return client.gather([client.submit(make, COUNT, workers=w, pure=False) for w in workers])

    read(np.ones(2))
    try:
        yield Values(read, back)
    finally:
        client.close()
        cluster.close()


@contextmanager
def ipyparallel() -> Generator[Values]:
    """`view.push` to four engines, and results of `apply_sync`."""
    import ipyparallel as engine

    cluster = engine.Cluster(n=RANKS, log_level=50)
    view = cluster.start_and_connect_sync(activate=False)[:]
    view.block = True

    def read(array: np.ndarray) -> list[float]:
        view.push({"array": array})
        return view.apply_sync(total, engine.Reference("array"))

    read(np.ones(2))
    try:
        yield Values(read, lambda: view.apply_sync(make, COUNT))
    finally:
        view.client.close()
        cluster.stop_cluster_sync()


CONTENDERS = {OURS: skyward, "ray": ray, "dask": dask, "ipyparallel": ipyparallel}
