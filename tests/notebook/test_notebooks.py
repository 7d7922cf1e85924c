"""The notebooks that show what this is: each runs to its end in a real kernel, and leaves nothing."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import gone_within, traces

FOLDER = Path(__file__).parents[2] / "notebooks"


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.ipynb")))
def test_runs_to_its_end(name, tmp_path):
    for package in ("torch", "sklearn", "matplotlib", "nbconvert"):
        pytest.importorskip(package)
    before = traces()
    command = [sys.executable, str(FOLDER / "execute.py"), str(FOLDER / name)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110)
    assert ran.returncode == 0, ran.stdout[-2000:]
    assert (tmp_path / "build" / name).exists()
    assert not gone_within(5, before)
