"""A notebook whose pool's machines share no files with it."""

from __future__ import annotations

import pytest
from kernels import kernel

ALLOW = """
import skyward_nb.options.option_table as options
object.__setattr__(options.BY_NAME["provider"], "read", lambda option, text: text)
"""


@pytest.fixture
def notebook(no_leaks):
    with kernel(JPY_SESSION_NAME="work/elsewhere.ipynb") as running:
        running.run(ALLOW)
        yield running
        running.run("%sky down all")


def test_cells_on_machines_elsewhere(notebook):
    pytest.importorskip("numpy")
    made = notebook.run("import numpy as np\nbig = np.arange(1_000_000)\nfactor = 3")
    assert made.status == "ok"
    ran = notebook.run("%%sky_remote provider=fake nodes=3 out=got\nbig * factor")
    assert ran.status == "ok", ran.error
    assert notebook.run("[int(each[-1]) for each in got]").result == "[2999997, 2999997, 2999997]"
    failed = notebook.run("%%sky_remote\nraise ValueError(big.sum())")
    assert failed.error[0] == "ValueError"
    assert "3 ranks" in notebook.run("%sky status").streams["stdout"]
    assert notebook.run("%%sky_remote\nbig[0] = 7\nint(big[0])").status == "ok"
    assert notebook.run("%sky pull big\n[int(each[0]) for each in big]").result == "[7, 7, 7]"


def test_a_kernel_that_comes_again_goes_on_with_machines_elsewhere(notebook):
    begun = notebook.run("%%sky_remote provider=fake nodes=2 idle=60s\nkept = 5")
    assert begun.status == "ok", begun.error
    words = notebook.restart()
    assert "was left on remote machines" in words
    notebook.run(ALLOW)
    attached = notebook.run("%sky attach")
    assert attached.status == "ok", attached.error
    assert notebook.run("%%sky_remote out=got\nkept").status == "ok"
    assert notebook.run("list(got)").result == "[5, 5]"
