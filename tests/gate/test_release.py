"""What is released: one version everywhere, and a wheel that runs the main job where nothing else is installed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs.blocks import ROOT
from gate.page_cells import run_page

import skyward_nb

VERSION = skyward_nb.__version__


def test_the_version_is_the_same_everywhere():
    assert f"\nversion: {VERSION}\n" in (ROOT / "CITATION.cff").read_text()
    dates = re.findall(rf"^## \[{VERSION}\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert f"\ndate-released: {dates[0]}\n" in (ROOT / "CITATION.cff").read_text()


def test_forms_for_issues_are_forms():
    yaml = pytest.importorskip("yaml")
    forms = [*(ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")]
    assert len(forms) >= 3
    for form in forms:
        read = yaml.safe_load(form.read_text())
        assert form.stem == "config" or {"name", "description", "body"} <= set(read)


def build_wheel(folder: Path) -> Path:
    """The wheel of this tree."""
    command = [sys.executable, "-m", "uv", "build", "--quiet", "--wheel", "--out-dir", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, timeout=280)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.mark.extensive
@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_wheel_runs_readme_in_an_empty_environment(no_leaks, tmp_path):
    """It asks the registry for what the package needs, unless uv has it in its cache."""
    wheel = build_wheel(tmp_path / "dist")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True)
    python = tmp_path / "env/bin/python"
    what = f"skyward-nb[torch] @ {wheel.as_uri()}"
    subprocess.run([str(ROOT / ".ci/install"), python, "--torch", what], check=True)
    run_page("README.md", python)
    run_page("docs/tutorial/first-pool.md", python)
