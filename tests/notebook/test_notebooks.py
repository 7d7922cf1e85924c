"""The notebooks that show what this is: each runs to its end in a real kernel, and leaves nothing."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from later import Later
from leaks import gone_within, traces

from skyward_nb.picture.record import MIME

nbformat = Later("nbformat")

FOLDER = Path(__file__).parents[2] / "notebooks"
NEEDS = {
    "06_keras_on_jax.ipynb": ("keras", "jax"),
    "07_jax.ipynb": ("jax",),
    "08_hugging_face.ipynb": ("accelerate", "datasets", "transformers"),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("[0-9]*.ipynb")))
def test_runs_to_its_end(name, tmp_path):
    for package in ("torch", "sklearn", "matplotlib", "nbconvert", *NEEDS.get(name, ())):
        pytest.importorskip(package)
    before = traces()
    command = [sys.executable, str(FOLDER / "execute.py"), str(FOLDER / name)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110)
    assert ran.returncode == 0, ran.stdout[-2000:]
    assert (tmp_path / "build" / name).exists()
    assert not gone_within(5, before)


def test_what_is_kept_needs_no_widget_and_is_the_same_elsewhere(tmp_path):
    """What nbclient keeps of a cell, and what nbconvert makes of that."""
    for package in ("matplotlib", "nbconvert"):
        pytest.importorskip(package)
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
    command = [sys.executable, str(FOLDER / "execute.py"), str(path)]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=110)
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
