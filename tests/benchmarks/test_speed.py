"""The speeds the project aims at, each beside its peers in one run: `make bench`.

No test here fails for being slow: figures are for people, printed at the end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from contenders import CONTENDERS, OURS

HERE = Path(__file__).parent
RANKS = 4
BY_TURNS = [OURS, "torchrun"] * 5  # the machine's mood changes: by turns, and medians over all
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def process(*command: str) -> None:
    """Run a program to its end; an error of it is ours."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, cwd=HERE, env=env, **QUIET)


def torchrun(*arguments: str) -> tuple[str, ...]:
    program = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={RANKS}"]
    return (*program, "--standalone", str(HERE / "ddp.py"), *arguments)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("who", CONTENDERS)
@pytest.mark.benchmark(group="warm cell x = 1, 4 ranks")
def test_warm_cell(benchmark, who):
    with CONTENDERS[who]() as step:
        for _ in range(20):
            step()
        slow = who in ("ipyparallel", "nbdistributed")
        benchmark.pedantic(step, rounds=100 if slow else 1000, iterations=1)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("who", CONTENDERS)
@pytest.mark.benchmark(group="new pool → first result")
def test_new_pool(benchmark, who):
    def once():
        stack = CONTENDERS[who]()
        stack.__enter__()
        open_ones.append(stack)

    open_ones = []

    def close():
        while open_ones:
            open_ones.pop().__exit__(None, None, None)

    def setup():
        close()
        return (), {}

    rounds = {"nbdistributed": 1, "ray": 3, "ipyparallel": 3}.get(who, 7)
    benchmark.pedantic(once, setup=setup, rounds=rounds, iterations=1)
    close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("who", BY_TURNS)
@pytest.mark.benchmark(group="nothing running → one DDP step")
def test_cold_ddp(benchmark, who):
    command = (sys.executable, str(HERE / "cold_ddp_skyward.py")) if who == OURS else torchrun()
    benchmark.pedantic(lambda: process(*command), rounds=1, iterations=1)


@pytest.mark.parametrize("who", [OURS, "python"])
@pytest.mark.benchmark(group="import skyward_nb")
def test_import(benchmark, who):
    code = "import skyward_nb" if who == OURS else "pass"
    benchmark.pedantic(lambda: process(sys.executable, "-c", code), rounds=21, warmup_rounds=3)


@pytest.mark.parametrize("who", [OURS, "ipython"])
@pytest.mark.benchmark(group="%load_ext skyward_nb")
def test_load_ext(benchmark, who):
    code = "from contenders import shell; ip = shell()"
    if who == OURS:
        code += "; ip.run_line_magic('load_ext', 'skyward_nb')"
    benchmark.pedantic(lambda: process(sys.executable, "-c", code), rounds=21, warmup_rounds=3)
