"""The notebook on a Slurm cluster runs to its end on a real one, and its job is gone then."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from later import Later
from leaks import leaves_nothing, places
from waiting import until

nbformat = Later("nbformat")

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "slurm.ipynb"
NEEDS = ("torch", "nbconvert")


@pytest.mark.extensive
@pytest.mark.torch
@pytest.mark.timeout(900)
def test_runs_to_its_end(cluster, tmp_path, monkeypatch, gallery):
    if lacking := [name for name in NEEDS if not importlib.util.find_spec(name)]:
        pytest.skip(f"not installed: {', '.join(lacking)}")
    folders = {**places(), "SKYWARD_CACHE_DIR": os.environ["SKYWARD_CACHE_DIR"]}
    lines = [f"export {name}={path}" for name, path in folders.items()]
    monkeypatch.setenv("SLURM_LINES", "\n".join(lines))
    monkeypatch.setenv("HOST_PYTHON", sys.executable)
    command = [sys.executable, str(NOTEBOOK.with_name("execute.py")), str(NOTEBOOK)]
    with leaves_nothing():
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=840)
        until(cluster.is_empty)
    assert ran.returncode == 0, ran.stdout[-3000:]
    page = nbformat.read(tmp_path / "build" / NOTEBOOK.name, as_version=4)
    told = "".join(str(cell.get("outputs", "")) for cell in page.cells)
    assert "sbatch --parsable" in told
    assert "c1: " in told and "c2: " in told
    gallery(tmp_path / "build" / NOTEBOOK.name)
