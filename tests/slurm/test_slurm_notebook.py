"""The notebook about Slurm runs to its end on a cluster of this machine, and leaves no job."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from later import Later
from waiting import until

nbformat = Later("nbformat")

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "slurm.ipynb"
NEEDS = ("torch", "nbconvert")


@pytest.mark.extensive
@pytest.mark.torch
@pytest.mark.timeout(300)
def test_runs_to_its_end(cluster, access, no_leaks, tmp_path, monkeypatch):
    if lacking := [name for name in NEEDS if not importlib.util.find_spec(name)]:
        pytest.skip(f"not installed: {', '.join(lacking)}")
    monkeypatch.setenv("HOST_PYTHON", sys.executable)
    monkeypatch.setenv("SLURM_LINES", "\n".join(access().before))
    command = [sys.executable, str(NOTEBOOK.with_name("execute.py")), str(NOTEBOOK)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert ran.returncode == 0, ran.stdout[-3000:]
    page = nbformat.read(tmp_path / "build" / NOTEBOOK.name, as_version=4)
    told = "".join(str(cell.get("outputs", "")) for cell in page.cells)
    assert "sbatch --parsable" in told
    assert "c1: " in told
    assert "c2: " in told
    until(cluster.is_empty)
