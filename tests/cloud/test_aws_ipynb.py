"""The notebook on machines that are rented runs to its end on a cloud of the tests, and leaves nothing."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from later import Later
from leaks import leaves_nothing

nbformat = Later("nbformat")

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "aws.ipynb"
NEEDS = ("torch", "nbconvert")


@pytest.mark.extensive
@pytest.mark.torch
@pytest.mark.timeout(900)
def test_runs_to_its_end(cloud, tmp_path, monkeypatch, gallery):
    if lacking := [name for name in NEEDS if not importlib.util.find_spec(name)]:
        pytest.skip(f"not installed: {', '.join(lacking)}")
    monkeypatch.setenv("RENTED", "nodes=2 instance_type=c6i.large")
    monkeypatch.setenv("MACHINE_PYTHON", sys.executable)
    command = [sys.executable, str(NOTEBOOK.with_name("execute.py")), str(NOTEBOOK)]
    with leaves_nothing():
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=840)
    assert ran.returncode == 0, ran.stdout[-3000:]
    page = nbformat.read(tmp_path / "build" / NOTEBOOK.name, as_version=4)
    told = "".join(str(cell.get("outputs", "")) for cell in page.cells)
    assert "rank 1 of 2" in told
    assert "c6i.large" in told and "AWS: nothing was left" in told
    cloud.nothing_left()
    gallery(tmp_path / "build" / NOTEBOOK.name)
