"""The Lab extension is whole: what was built is of these sources, and of this version."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile

import pytest
from gate.labextension import FOLDER, digest
from gate.test_release import build_wheel

import skyward_nb

BUILT = FOLDER / "built"


def test_what_was_built_is_of_these_sources():
    kept = (FOLDER / "built.sha256").read_text().strip()
    assert digest() == kept, "labextension/ has changed: make labextension builds it anew"


def test_both_halves_have_one_version():
    for path in (FOLDER / "package.json", FOLDER / "package-lock.json", BUILT / "package.json"):
        assert json.loads(path.read_text())["version"] == skyward_nb.__version__, path


def test_what_lab_loads_is_there():
    load = json.loads((BUILT / "package.json").read_text())["jupyterlab"]["_build"]["load"]
    assert (BUILT / load).is_file()
    assert {path.name.split(".")[0] for path in (BUILT / "static").iterdir()} >= {
        "remoteEntry",
        "style",
    }


def test_lab_4_4_takes_it_too():
    """A range that Lab's own packages do not fit in is a warning in the browser's console."""
    package = json.loads((FOLDER / "package.json").read_text())
    shared = package["jupyterlab"]["sharedPackages"]
    assert {name: each["requiredVersion"] for name, each in shared.items()} == package[
        "dependencies"
    ]


@pytest.mark.extensive
def test_the_wheel_has_both_halves_and_needs_no_node(tmp_path):
    with zipfile.ZipFile(build_wheel(tmp_path)) as wheel:
        names = {name.partition(".data/data/")[2] for name in wheel.namelist()}
    ours = "share/jupyter/labextensions/skyward-nb/"
    assert {f"{ours}package.json", f"{ours}install.json"} <= names
    assert "etc/jupyter/jupyter_server_config.d/skyward_nb.json" in names


@pytest.mark.extensive
def test_the_server_is_told_of_the_other_half():
    listed = [sys.executable, "-m", "jupyter", "server", "extension", "list"]
    said = subprocess.run(listed, capture_output=True, text=True, check=True)
    assert "skyward_nb.lab" in said.stdout + said.stderr
