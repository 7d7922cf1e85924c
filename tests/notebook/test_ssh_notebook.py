"""The notebook on hosts runs to its end on an sshd of this machine, and leaves nothing."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from later import Later
from leaks import leaves_nothing
from sshds import lacks, sshd

nbformat = Later("nbformat")

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "ssh.ipynb"
NEEDS = ("torch", "nbconvert")


@pytest.mark.extensive
@pytest.mark.torch
@pytest.mark.skipif(bool(lacks()), reason=lacks())
def test_runs_to_its_end(tmp_path, monkeypatch, gallery):
    if lacking := [name for name in NEEDS if not importlib.util.find_spec(name)]:
        pytest.skip(f"not installed: {', '.join(lacking)}")
    with sshd(tmp_path / "sshd") as server, leaves_nothing():
        config = server.client_config
        both = f"Host gpu1 gpu2\n  HostName {server.address}\n  Port {server.port}\n"
        config.write_text(both + config.read_text())
        for name, value in {
            "SKYWARD_HOSTS": "gpu1,gpu2",
            "SKYWARD_CONFIG": str(config),
            "HOST_PYTHON": sys.executable,
        }.items():
            monkeypatch.setenv(name, value)
        command = [sys.executable, str(NOTEBOOK.with_name("execute.py")), str(NOTEBOOK)]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
        assert ran.returncode == 0, ran.stdout[-3000:]
        page = nbformat.read(tmp_path / "build" / NOTEBOOK.name, as_version=4)
    told = "".join(str(cell.get("outputs", "")) for cell in page.cells)
    assert "rank 1 of 2" in told
    assert "both ranks reach each other" in told
    gallery(tmp_path / "build" / NOTEBOOK.name)
