"""The notebooks that show what this is: each runs to its end in a real kernel, and leaves nothing."""

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from IPython.core.inputtransformer2 import TransformerManager
from kernels import by_files
from later import Later

from skyward_nb.options.option_line import parse
from skyward_nb.picture.record import MIME

nbformat = Later("nbformat")

FOLDER = Path(__file__).parents[2] / "notebooks"
NAMES = [
    *sorted(path.name for path in FOLDER.glob("[0-9]*.ipynb")),
    "scripts.ipynb",
    "sources.ipynb",
]
FIRST, *OTHERS = NAMES
NEEDS = {
    "sources.ipynb": ("keras", "jax"),
    "06_keras_on_jax.ipynb": ("keras", "jax"),
    "07_jax.ipynb": ("jax",),
    "08_hugging_face.ipynb": ("accelerate", "datasets", "transformers"),
    "09_mesh.ipynb": ("jax",),
    "scripts.ipynb": ("yaml",),
}
SLOW = {
    "02_names.ipynb": "notebook/test_names.py",
    "03_progress.ipynb": "lab/test_picture.py",
    "04_when_it_fails.ipynb": "notebook/test_failures.py",
    "05_ddp.ipynb": "plugins/test_torch.py",
    "06_keras_on_jax.ipynb": "sources/test_jax_programs.py",
    "07_jax.ipynb": "plugins/test_jax.py",
    "08_hugging_face.ipynb": "plugins/test_huggingface.py",
    "09_mesh.ipynb": "plugins/test_torch_parallel.py",
    "scripts.ipynb": "notebook/test_torchrun.py",
    "sources.ipynb": "sources/test_torch_programs.py",
}
"""What runs with `--all` alone, and what of the tests shows the same each time."""


def others():
    for name in OTHERS:
        yield pytest.param(name, marks=[pytest.mark.extensive] * (name in SLOW))


def skip_without(*packages):
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


def run_here(path):
    """Run a notebook as `execute.py` does, in this process, which has imported what that takes."""
    spec = importlib.util.spec_from_file_location("execute", FOLDER / "execute.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with by_files() as config:
        return module.execute(path, config)


@pytest.mark.extensive
@pytest.mark.torch
def test_the_first_runs_to_its_end_from_a_command_line(no_leaks, tmp_path):
    skip_without("torch", "sklearn", "matplotlib", "nbconvert")
    command = [sys.executable, str(FOLDER / "execute.py"), str(FOLDER / FIRST)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert ran.returncode == 0, ran.stdout[-2000:]
    assert (tmp_path / "build" / FIRST).exists()


@pytest.mark.torch
@pytest.mark.parametrize("name", [*others()])
def test_runs_to_its_end(no_leaks, name, tmp_path, monkeypatch, capsys):
    skip_without("torch", "sklearn", "matplotlib", "nbconvert", *NEEDS.get(name, ()))
    monkeypatch.chdir(tmp_path)
    assert run_here(FOLDER / name), capsys.readouterr().out[-2000:]
    assert (tmp_path / "build" / name).exists()


def test_what_runs_seldom_is_shown_by_another_test():
    assert all((Path(__file__).parents[1] / guard).exists() for guard in SLOW.values())


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.ipynb")))
def test_every_cell_is_understood(name):
    """Also of those that run with `--all` alone."""
    for cell in nbformat.read(FOLDER / name, as_version=4).cells:
        if cell.cell_type == "code":
            line, body = re.fullmatch(r"(?:%%sky_remote(.*)\n)?((?s:.*))", cell.source).groups("")
            if "{" not in line:  # what stands in braces is known once the notebook runs
                parse(line)
            text = TransformerManager().transform_cell(body)
            compile(text, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_what_is_kept_needs_no_widget_and_is_the_same_elsewhere(no_leaks, tmp_path, monkeypatch):
    """What nbclient keeps of a cell, and what nbconvert makes of that."""
    skip_without("matplotlib", "nbconvert")
    body = """%%sky_remote nodes=2
import matplotlib.pyplot as plt
import skyward_nb as sky
for step in sky.progress(range(5), desc="epoch"):
    sky.log(loss=1 / (step + 1))
plt.plot([1, 2, 3])
plt.show()
print("\\x1b[31mred\\x1b[0m <b>")
"""
    notebook = nbformat.v4.new_notebook()
    codes = ["%load_ext skyward_nb", body, "%sky down"]
    notebook.cells = [nbformat.v4.new_code_cell(code) for code in codes]
    path = tmp_path / "kept.ipynb"
    nbformat.write(notebook, path)
    monkeypatch.chdir(tmp_path)
    assert run_here(path)
    kept = nbformat.read(tmp_path / "build" / "kept.ipynb", as_version=4)
    assert "widgets" not in kept.metadata
    (picture,) = kept.cells[1].outputs
    assert set(picture.data) == {"text/html", "text/plain", MIME}
    html = picture.data["text/html"]
    page = (tmp_path / "build" / "kept.html").read_text()
    for part in (html.partition("<div")[2].partition(">")[0], "epoch 5/5 · 100%", "red"):
        assert part in html
        assert part in page
    for image in re.findall(r'src="(data:image/[^"]{100,})"', html):
        assert image in page
    assert html.count("<img") == 3, "a figure, and a curve on both scales"
    assert "&lt;b&gt;" in html
