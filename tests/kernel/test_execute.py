"""`jupyter execute` with the kernel "Python on a pool": a program that shows no widgets and answers nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from later import Later

from skyward_nb.kernel import kernelspecs

nbformat = Later("nbformat")


@pytest.mark.extensive
def test_a_notebook_without_magic_lines_is_executed(prefix, tmp_path, no_leaks):
    words = ["--prefix", str(prefix), "--nodes", "2", "--name", "two"]
    kernelspecs.install(kernelspecs.read(words))
    cells = ["x = sky.rank()\nprint('rank', x)\nx", "%sky pull x as=there", "%%local\nthere"]
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    made.metadata["kernelspec"] = {"name": "two", "display_name": "2", "language": "python"}
    nbformat.write(made, tmp_path / "in.ipynb")
    # The interpreter of these tests has it beside it.
    program = str(Path(sys.executable).parent / "jupyter-execute")
    subprocess.run(
        [program, "in.ipynb", "--inplace"], cwd=tmp_path, env=os.environ, check=True, timeout=120
    )
    first, _, last = nbformat.read(tmp_path / "in.ipynb", as_version=4).cells
    picture, value = first.outputs
    assert "every cell: nodes=2" in picture.data["text/plain"]
    assert "rank 1" in picture.data["text/html"]
    assert value.data["text/plain"] == "[0] 0\n[1] 1"
    assert last.outputs[0].data["text/plain"] == "[0] 0\n[1] 1"
