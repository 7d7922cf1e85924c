"""Programs that execute notebooks: papermill, `jupyter execute`, `jupyter nbconvert --execute`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from later import Later

from frontends.environments import own_folders, python_of
from skyward_nb.picture.record import MIME

nbformat = Later("nbformat")

PROGRAMS = {
    "papermill": ["papermill", "in.ipynb", "out.ipynb", "--no-progress-bar", "-k"],
    "execute": ["jupyter-execute", "in.ipynb", "--output=out", "--kernel_name"],
    "nbconvert": [
        *("jupyter-nbconvert", "--to=notebook", "--execute", "in.ipynb", "--output=out"),
        "--ExecutePreprocessor.kernel_name",
    ],
}
CELLS = [
    "%load_ext skyward_nb",
    "%%sky_remote nodes=2\nimport skyward_nb as sky\nprint('hello from', sky.rank())\nsky.rank()",
    "%sky down",
]
POOL_CELLS = ["print('hello from', sky.rank())\nsky.rank()", "%%local\n'here'"]
pytestmark = [pytest.mark.extensive, pytest.mark.usefixtures("no_leaks")]


def execute(program: str, folder: Path, cells: list[str], kernel: str = "python3"):
    """(exit code, what it said, the notebook as it wrote it)."""
    python = python_of("headless")
    env = own_folders(folder)
    if kernel != "python3":
        words = ["-m", "skyward_nb.kernel", "install", "--prefix", str(folder), "--nodes", "2"]
        subprocess.run([python, *words, "--name", kernel], env=env, check=True, timeout=60)
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    made.metadata["kernelspec"] = {"name": kernel, "display_name": "P", "language": "python"}
    nbformat.write(made, folder / "in.ipynb")
    name, *words = PROGRAMS[program]
    joined = words[-1].startswith("--")
    command = [str(Path(python).parent / name), *words[:-1]]
    command += [f"{words[-1]}={kernel}"] if joined else [words[-1], kernel]
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=240)
    path = folder / "out.ipynb"
    written = nbformat.read(path, as_version=4) if path.exists() else None
    return ran.returncode, ran.stdout + ran.stderr, written


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_notebook_keeps_its_finished_pictures(program, tmp_path):
    code, said, written = execute(program, tmp_path, CELLS)
    assert code == 0, said
    outputs = next(each for each in written.cells if "sky.rank" in each.source).outputs
    shown = [each for each in outputs if each.output_type == "display_data"]
    assert len(shown) == 1
    assert "hello from 1" in shown[0].data["text/html"]
    assert "2 ranks finished" in shown[0].data["text/plain"]
    assert MIME in shown[0].data
    assert outputs[-1].data["text/plain"] == "[0] 0\n[1] 1"


@pytest.mark.parametrize("program", PROGRAMS)
def test_cells_without_a_line_above_them_run_on_ranks(program, tmp_path):
    code, said, written = execute(program, tmp_path, POOL_CELLS, kernel="two")
    assert code == 0, said
    first, second = (each.outputs for each in written.cells if each.source in POOL_CELLS)
    assert "every cell: nodes=2" in first[0].data["text/plain"]
    assert first[-1].data["text/plain"] == "[0] 0\n[1] 1"
    assert second[-1].data["text/plain"] == "'here'"


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_failed_cell_ends_the_program_and_leaves_nothing(program, tmp_path):
    failing = [CELLS[0], f"{CELLS[1]}\n1 / 0", "never = 1"]
    code, said, _ = execute(program, tmp_path, failing)
    assert code != 0
    assert "ZeroDivisionError" in said
    assert "raised on ranks 0-1 of 2" in said
