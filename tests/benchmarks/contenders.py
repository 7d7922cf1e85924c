"""Ways to have four processes run `x = 1`, ours and the peers', each as its users would.

A contender starts when entered, has run one piece of code then, and is gone when left.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

RANKS = 4
CODE = "x = 1"
Step = Callable[[], object]


def shell() -> InteractiveShell:
    """The one IPython shell of this process, its history in memory."""
    config = Config()
    config.HistoryManager.hist_file = ":memory:"
    return InteractiveShell.instance(config=config)


@contextmanager
def skyward() -> Generator[Step]:
    """A `%%sky_remote` cell on four local ranks: the whole of `run_cell_magic`."""
    ip = shell()
    ip.run_line_magic("load_ext", "skyward_nb")

    def step() -> object:
        return ip.run_cell_magic("sky_remote", f"nodes={RANKS}", CODE)

    step()
    try:
        yield step
    finally:
        with contextlib.redirect_stdout(io.StringIO()):
            ip.run_line_magic("sky", "down")


@contextmanager
def monarch() -> Generator[Step]:
    """An endpoint of an actor mesh of four processes."""
    from monarch.actor import Actor, endpoint, this_host

    class Runner(Actor):
        def __init__(self) -> None:
            self.names: dict[str, object] = {}

        @endpoint
        def run(self, code: str) -> None:
            exec(code, self.names)

    processes = this_host().spawn_procs(per_host={"gpus": RANKS})
    runner = processes.spawn("runner", Runner)

    def step() -> object:
        return runner.run.call(CODE).get()

    step()
    try:
        yield step
    finally:
        processes.stop().get()


@contextmanager
def ray() -> Generator[Step]:
    """A method of four actors."""
    import ray as engine

    engine.init(num_cpus=RANKS, include_dashboard=False, logging_level="ERROR", log_to_driver=False)

    @engine.remote(num_cpus=1)
    class Runner:
        def __init__(self) -> None:
            self.names: dict[str, object] = {}

        def run(self, code: str) -> None:
            exec(code, self.names)

    runners = [Runner.remote() for _ in range(RANKS)]

    def step() -> object:
        return engine.get([runner.run.remote(CODE) for runner in runners])

    step()
    try:
        yield step
    finally:
        engine.shutdown()


NAMES: dict[str, object] = {}


def run_here(code: str) -> None:
    """Run code in this process's names."""
    exec(code, NAMES)


@contextmanager
def dask() -> Generator[Step]:
    """`client.run` on four workers."""
    from dask.distributed import Client, LocalCluster

    cluster = LocalCluster(
        n_workers=RANKS, threads_per_worker=1, dashboard_address=None, silence_logs=50
    )
    client = Client(cluster)

    def step() -> object:
        return client.run(run_here, CODE)

    step()
    try:
        yield step
    finally:
        client.close()
        cluster.close()


@contextmanager
def ipyparallel() -> Generator[Step]:
    """A `%%px` cell on four engines."""
    import ipyparallel as engine

    ip = shell()
    cluster = engine.Cluster(n=RANKS, log_level=50)
    view = cluster.start_and_connect_sync(activate=False)[:]
    view.block = True
    view.activate()

    def step() -> object:
        return ip.run_cell_magic("px", "", CODE)

    step()
    try:
        yield step
    finally:
        view.client.close()
        cluster.stop_cluster_sync()


@contextmanager
def nbdistributed() -> Generator[Step]:
    """A `%%distributed` cell on four workers."""
    ip = shell()
    # Its workers are started as `python`, wherever that is.
    folder = str(Path(sys.executable).parent)
    if folder not in os.environ["PATH"].split(os.pathsep):
        os.environ["PATH"] = folder + os.pathsep + os.environ["PATH"]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        ip.run_line_magic("load_ext", "nbdistributed")
        ip.run_line_magic("dist_init", f"-n {RANKS}")
    if "Successfully started" not in said.getvalue():
        raise RuntimeError(said.getvalue())

    def step() -> object:
        with contextlib.redirect_stdout(io.StringIO()):
            return ip.run_cell_magic("distributed", "", CODE)

    step()
    try:
        yield step
    finally:
        with contextlib.redirect_stdout(io.StringIO()):
            ip.run_line_magic("dist_shutdown", "")


OURS = "skyward_nb"
CONTENDERS = {
    OURS: skyward,
    "monarch": monarch,
    "ray": ray,
    "dask": dask,
    "ipyparallel": ipyparallel,
    "nbdistributed": nbdistributed,
}
