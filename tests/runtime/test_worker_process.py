"""Which workers of torchrun a forge may fork, by their variables."""

from __future__ import annotations

import subprocess
import sys

import pytest

from skyward_nb.runtime.worker_process import ForkWorker, why_not


@pytest.mark.parametrize(
    ("env", "words", "says"),
    [
        # threadpoolctl sets it in a rank that has torch loaded: in the second run of a pool.
        ({"KMP_DUPLICATE_LIB_OK": "True"}, ("main.py",), ""),
        ({"TORCH_LOGS": "all"}, ("-m", "train"), "TORCH_LOGS is read by imports"),
        (
            {"TORCHINDUCTOR_MAX_AUTOTUNE": "1"},
            ("main.py",),
            "TORCHINDUCTOR_MAX_AUTOTUNE is read by",
        ),
        ({"TORCHELASTIC_RUN_ID": "none"}, ("main.py",), ""),
        ({"LR": "3"}, ("-m", "train"), ""),
        ({}, ("-X", "dev"), "-X is an option of Python"),
    ],
)
def test_a_worker_is_forked_where_it_would_be_the_same(env, words, says):
    order = ForkWorker(words, env, "/", "", "", (0,), (0, 0))
    assert why_not(order, {}).startswith(says)
    assert bool(why_not(order, {})) == bool(says)


LIVES = """
import os, resource, sys
from pathlib import Path
from skyward_nb.node.worker_forks import WorkerForks
from skyward_nb.runtime.worker_process import ForkWorker
forge = os.getpid()
for code in map(int, sys.argv[1:]):
    Path("ends.py").write_text(f"import sys\\nsys.exit({code})")
    order = ForkWorker(("ends.py",), dict(os.environ), os.getcwd(), "out", "err",
                       tuple(os.sched_getaffinity(0)), resource.getrlimit(resource.RLIMIT_DATA))
    if not (pid := os.fork()):
        WorkerForks(Path.cwd(), lambda: None)._live(order, os.open(os.devnull, os.O_RDONLY))
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    assert os.getpid() == forge, "it has led back into the forge"
"""


def test_a_worker_ends_with_its_exit_code_and_never_goes_on_as_a_forge(tmp_path):
    """A negative one is no signal: it may be what a program that was killed was told by."""
    command = [sys.executable, "-c", LIVES, "3", "-1", "-9", "-1000"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.stdout.split() == ["3", "255", "247", "24"], ran.stderr
