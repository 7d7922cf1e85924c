"""Scripts: how soon a worker has made its first step beside torchrun, and a folder on its way to a host beside rsync.

No test here fails for being slow: figures are for people, printed at the end.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from contenders import OURS
from sshds import Sshd, lacks, sshd
from test_speed import BY_TURNS, HERE, QUIET, RANKS, torchrun

import skyward_nb as sky
from skyward_nb.pool.pool import Pool
from skyward_nb.workdir.working_folder import WorkingFolder, key_of

FIRST = "2,000 small files to a host, first time"
AGAIN = "2,000 small files to a host, unchanged"
SKY = (sys.executable, "-m", "skyward_nb")


# ── the first step ──────────────────────────────────────────────────────────────────────


@contextmanager
def launcher(who: str) -> Generator[Callable[..., tuple[str, ...]]]:
    """A command that runs `ddp.py` on four workers; ours does on a pool that is up."""
    if who != OURS:
        yield torchrun
        return
    line = (*SKY, "torchrun", "pool=bench", f"--nproc-per-node={RANKS}", str(HERE / "ddp.py"))
    subprocess.run((*line[:4], "keep", *line[4:]), cwd=HERE, check=True, **QUIET)
    try:
        yield lambda *words: (*line, *words)
    finally:
        subprocess.run((*SKY, "down", "bench"), check=True, **QUIET)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("who", BY_TURNS)
@pytest.mark.benchmark(group="torchrun on a warm pool → first step, 4 workers")
def test_first_step(benchmark, tmp_path, who):
    told = tmp_path / "told"
    os.mkfifo(told)
    begun: list[subprocess.Popen[bytes]] = []

    def end() -> None:
        while begun:
            assert begun.pop().wait() == 0

    with launcher(who) as command:

        def step() -> None:
            begun.append(subprocess.Popen(command("told", str(told)), cwd=HERE, **QUIET))
            assert told.read_text() == "stepped\n"

        benchmark.pedantic(step, setup=end, rounds=2, iterations=1)
        end()


# ── a folder ────────────────────────────────────────────────────────────────────────────


def project(folder: Path) -> Path:
    """2,000 files of source and data, most of a few kilobytes, in 40 folders."""
    for number in range(2000):
        path = folder / f"part{number % 40}" / f"file{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(500 + number % 50 * 100))
    return folder


@contextmanager
def pool_by(server: Sshd) -> Iterator[Pool]:
    """A pool of one host: this machine, by way of a server on loopback."""
    provider = sky.SSH(**server.access())
    image = sky.Image(interpreter=sys.executable)
    with sky.Compute(provider=provider, image=image, quiet=True) as pool:
        yield pool._runner.pool


@contextmanager
def sender(who: str, server: Sshd, source: Path) -> Generator[tuple[Callable[[], object], Path]]:
    """Sends a folder; and where it is then, which is removed to send it for the first time."""
    if who != OURS:
        remote = ["rsync", "-a", "-e", f"ssh -F {server.client_config} -p {server.port}"]
        there = server.folder / "there"
        line = [*remote, f"{source}/", f"{server.address}:{there}/"]
        yield lambda: subprocess.run(line, check=True), there
        return
    with pool_by(server) as pool:
        key = key_of(source, pool.spec.name)
        folder = WorkingFolder(source, key)
        there = server.home / ".cache" / "skyward_nb" / "folders"
        send = pool.sending.folders.send
        yield lambda: send(folder, pool.ranks, lambda _: None), there


@pytest.mark.skipif(bool(lacks()), reason=lacks())
@pytest.mark.skipif(shutil.which("rsync") is None, reason="apt-get install rsync")
@pytest.mark.parametrize("who", [OURS, "rsync"] * 3)
@pytest.mark.parametrize("group", [FIRST, AGAIN])
def test_folder(benchmark, tmp_path, group, who):
    benchmark.group = group
    source = project(tmp_path / "project")
    with (
        sshd(tmp_path / "sshd") as server,
        sender(who, server, source) as (send, there),
    ):
        send()
        assert sum(1 for _ in there.rglob("file*.py")) == 2000, there

        def setup() -> None:
            if group == FIRST:
                shutil.rmtree(there)

        benchmark.pedantic(send, setup=setup, rounds=5, warmup_rounds=1, iterations=1)
