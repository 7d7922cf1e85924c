"""Frameworks: how soon they are ready, and training beside torchrun with the same script.

No test here fails for being slow: figures are for people, printed at the end.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from contenders import OURS, shell
from test_speed import BY_TURNS, HERE, QUIET, RANKS, torchrun

EPOCHS = {"ddp": 20, "fsdp": 4}


@contextmanager
def pool(framework: str) -> Generator[object]:
    ip = shell()
    ip.run_line_magic("load_ext", "skyward_nb")
    ip.user_ns["folder"] = str(HERE)
    body = "import sys; sys.path.insert(0, folder)"
    ip.run_cell_magic("sky_remote", f"nodes={RANKS} framework={framework}", body)
    try:
        yield ip
    finally:
        ip.run_line_magic("sky", "down")


READY = {
    "torch": "import torch.distributed as d\nd.barrier()",
    "jax": "import jax\nassert jax.device_count() == 4",
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("who", [OURS])
@pytest.mark.parametrize("framework", READY)
def test_restart(benchmark, framework, who):
    benchmark.group = f"restart → {framework} ready, 4 ranks"
    with pool(framework) as ip:

        def step():
            ip.run_line_magic("sky", "restart")
            ip.run_cell_magic("sky_remote", "", READY[framework])

        benchmark.pedantic(step, rounds=15, warmup_rounds=1, iterations=1)


@contextmanager
def trainer(who: str, kind: str) -> Generator[object]:
    """A step that trains the demo's model for some epochs on four processes that live on."""
    if who == OURS:
        with pool("torch") as ip:
            body = f"import ddp; ddp.demo_epochs({kind!r}, {EPOCHS[kind]});"
            yield lambda: ip.run_cell_magic("sky_remote", "", body)
        return
    with tempfile.TemporaryDirectory() as folder:
        orders, answers = Path(folder, "orders"), Path(folder, "answers")
        os.mkfifo(orders)
        os.mkfifo(answers)
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = torchrun(kind, str(EPOCHS[kind]), str(orders), str(answers))
        with subprocess.Popen(command, cwd=HERE, env=env, **QUIET):
            with orders.open("w") as ask, answers.open() as hear:

                def step():
                    ask.write("go\n")
                    ask.flush()
                    assert hear.readline() == "done\n"

                yield step


@pytest.mark.timeout(600)
@pytest.mark.parametrize("who", BY_TURNS)
@pytest.mark.parametrize("kind", EPOCHS)
def test_training(benchmark, who, kind):
    benchmark.group = f"{kind.upper()} training of the demo"
    with trainer(who, kind) as step:
        benchmark.pedantic(step, rounds=5, warmup_rounds=1, iterations=1)
