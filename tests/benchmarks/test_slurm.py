"""A pool on Slurm beside what else gives a notebook workers there, on one cluster of this machine: `make bench`."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import pytest
from contenders import OURS, run_here, shell
from slurm.town import Town, lacks, town
from waiting import until

Step = Callable[[], object]
NODES = 2
CODE = "x = 1"
ROUNDS = {OURS: 5, "ipyparallel": 2, "dask-jobqueue": 3}
pytestmark = [pytest.mark.skipif(bool(lacks()), reason=lacks()), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    folder = tmp_path_factory.mktemp("town")
    with pytest.MonkeyPatch.context() as patched, town(folder / "slurm") as made:
        for name, value in made.environ.items():
            patched.setenv(name, value)
        yield made


@contextmanager
def skyward(_folder: Path) -> Generator[Step]:
    """A `%%sky_remote` cell on two nodes whose environment is there."""
    import skyward_nb as sky

    ip = shell()
    ip.run_line_magic("load_ext", "skyward_nb")
    ip.user_ns["here"] = sky.Image(interpreter=sys.executable)

    def step() -> object:
        return ip.run_cell_magic("sky_remote", f"provider=slurm nodes={NODES} image=here", CODE)

    step()
    try:
        yield step
    finally:
        with contextlib.redirect_stdout(io.StringIO()):
            ip.run_line_magic("sky", "down")


@contextmanager
def ipyparallel(folder: Path) -> Generator[Step]:
    """A `%%px` cell on two engines of its Slurm launcher; the controller is here."""
    import ipyparallel as engine

    ip = shell()
    was = Path.cwd()
    os.chdir(folder)
    cluster = engine.Cluster(
        n=NODES,
        engines="slurm",
        log_level=50,
        controller_ip="127.0.0.1",
        profile_dir=str(folder / "profile"),
    )
    view = cluster.start_and_connect_sync(activate=False)[:]
    view.block = True
    view.activate()
    try:
        yield lambda: ip.run_cell_magic("px", "", CODE)
    finally:
        view.client.close()
        cluster.stop_cluster_sync()
        os.chdir(was)


@contextmanager
def jobqueue(folder: Path) -> Generator[Step]:
    """`client.run` on two workers, each a job."""
    from dask.distributed import Client
    from dask_jobqueue import SLURMCluster

    cluster = SLURMCluster(
        cores=1, processes=1, memory="1GB", walltime="00:10:00", interface="lo", python=sys.executable,
        log_directory=str(folder), local_directory=str(folder), job_directives_skip=["--mem"],
        scheduler_options={"dashboard_address": None},
    )  # fmt: skip
    cluster.scale(jobs=NODES)
    client = Client(cluster)
    client.wait_for_workers(NODES)
    try:
        yield lambda: client.run(run_here, CODE)
    finally:
        client.close()
        cluster.close()


CONTENDERS = {OURS: skyward, "ipyparallel": ipyparallel, "dask-jobqueue": jobqueue}


def seconds(step: Step) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def of_slurm(folder: Path) -> None:
    """A job of Slurm's own on both nodes, from its submission until it runs on each."""
    folder.mkdir()
    words = ["sbatch", f"-N{NODES}", "--ntasks-per-node=1", "--output=/dev/null", "--wrap"]
    mark = f"srun sh -c ': >{folder}/$SLURMD_NODENAME'"
    subprocess.run([*words, mark], check=True, stdout=subprocess.DEVNULL)
    # `sbatch --wait` looks each two seconds.
    until(lambda: len([*folder.iterdir()]) == NODES)


def beside(found: dict[str, float], spell: Callable[[float], str]) -> str:
    """Each one's median, and how many times ours those of the peers are."""
    words = [
        f"{who} {spell(took)}" + f" ({took / found[OURS]:.1f} ×)" * (who != OURS)
        for who, took in found.items()
    ]
    return ", ".join(words)


def test_slurm(cluster, tmp_path, figure):
    own = median(seconds(lambda at=at: of_slurm(tmp_path / f"own{at}")) for at in range(5))
    ups: dict[str, list[float]] = {who: [] for who in CONTENDERS}
    warm: dict[str, float] = {}
    for turn in range(max(ROUNDS.values())):
        for who, enter in CONTENDERS.items():
            if turn >= ROUNDS[who]:
                continue
            folder = tmp_path / f"{who}{turn}"
            folder.mkdir()
            began = time.perf_counter()
            with enter(folder) as step:
                step()
                ups[who].append(time.perf_counter() - began)
                if turn == ROUNDS[who] - 1:
                    for _ in range(20):
                        step()
                    warm[who] = median(seconds(step) for _ in range(200))
    up = {who: median(times) for who, times in ups.items()}
    told = beside(up, lambda took: f"{took:.2f} s")
    most = 1.3 * (own + 3)
    figure(
        "Slurm: submitted → the first cell has run on 2 nodes",
        f"{told}; a job of Slurm's own {own:.2f} s",
        f"1.3 × (Slurm's own + 3 s) = {most:.1f} s",
        up[OURS] <= most,
    )
    told = beside(warm, lambda took: f"{1000 * took:.1f} ms")
    figure("Slurm: a warm cell, x = 1 on 2 nodes", told, "5 ms", warm[OURS] <= 0.005)
