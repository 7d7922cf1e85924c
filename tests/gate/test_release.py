"""What is released: one version everywhere, and a wheel that runs the main job where nothing else is installed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs.blocks import ROOT, blocks_of, not_shown
from jupyter_client.manager import KernelManager
from kernels import Kernel

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


def run_page(page: str, python: Path) -> None:
    """Run the cells of a page in a kernel of this Python."""
    manager = KernelManager(kernel_name="python3")
    manager.kernel_spec.argv[0] = str(python)
    manager.start_kernel(cwd=str(python.parent))
    kernel = Kernel(manager)
    try:
        for block in blocks_of(page):
            if block.language == "python" and not block.not_run:
                ran = kernel.run(block.code, timeout=120)
                assert ran.status == "ok", ran.traceback
                assert not_shown(block.shows, f"{ran.picture}\n{ran.stdout}\n{ran.result}") == []
        where = kernel.run("skyward_nb = __import__('skyward_nb'); skyward_nb.__file__").result
        assert str(python.parents[1]) in where
    finally:
        kernel.client.stop_channels()
        manager.shutdown_kernel()
        manager.cleanup_resources()


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
