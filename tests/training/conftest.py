"""Programs in the shape of PyTorch's and JAX's examples, and what a run of one printed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cluster.conftest import hosts, kernel_of_module, notebook, towns

__all__ = ["hosts", "kernel_of_module", "notebook", "towns"]  # fixtures
PROGRAMS = Path(__file__).parent / "programs"
_LOSS = re.compile(r"epoch (\d+) loss ([\d.]+)")


def losses(text: str) -> dict[int, float]:
    """The loss of each epoch that a program has printed."""
    return {int(epoch): float(loss) for epoch, loss in _LOSS.findall(text)}


@pytest.fixture
def program(tmp_path):
    """A copy of a program in a folder of its own."""

    def copied(name: str, into: str = "project") -> Path:
        return Path(shutil.copytree(PROGRAMS / name, tmp_path / into))

    return copied


@pytest.fixture
def alone(program):
    """The losses of a program in one plain process."""

    def run(name: str, *words: str) -> dict[int, float]:
        ran = subprocess.run(
            [sys.executable, "main.py", *words],
            cwd=program(name, "alone"),
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert ran.returncode == 0, ran.stderr
        return losses(ran.stdout)

    return run
