"""Cells as a script: what of the others is needed, in which order."""

from __future__ import annotations

import pytest

from skyward_nb.cell.cells_script import CellsScript, PastCell, cells_script


def made(*codes: str, chosen: int | None = None, ranks: tuple[int, ...] = ()) -> CellsScript:
    cells = [PastCell(n, code, n in ranks) for n, code in enumerate(codes, 1)]
    return cells_script(cells, {chosen or len(cells)})


def lines(script: CellsScript) -> list[str]:
    text = f"{script.before}\n{script.chosen}"
    return [line for line in text.splitlines() if line and not line.startswith("# Cell")]


@pytest.mark.parametrize(
    ("codes", "kept"),
    [
        (("import os, sys", "x = 1; y = 2", "x"), ["x = 1", "_ = x"]),
        (("import numpy as np\nimport os", "a = np.ones(3)", "a.sum()"), ["import numpy as np", "a = np.ones(3)"]),
        (("x = 1", "x = 2", "print(x)"), ["x = 2", "print(x)"]),
        (("x = 1", "if y:\n    x = 2", "y = 0", "print(x)"), ["x = 1", "if y:", "    x = 2", "print(x)"]),
        (("x = []", "x.append(1)", "print(x)"), ["x = []", "x.append(1)", "print(x)"]),
        (("x = {}", "x['a'] = 1", "z = 3", "print(x)"), ["x = {}", "x['a'] = 1", "print(x)"]),
        (("import torch", "torch.manual_seed(0)", "torch.ones(1);"), ["import torch", "torch.manual_seed(0)"]),
        (("def f():\n    return g()", "k = 1", "def g():\n    return k", "k = 2", "f();"),
         ["def f():", "    return g()", "def g():", "    return k", "k = 2", "f()"]),
        (("class A:\n    pass", "class B(A):\n    pass", "B();"), ["class A:", "    pass", "class B(A):", "    pass"]),
        (("from m import *", "x = y", "x;"), ["from m import *", "x = y"]),
        (("n = 0", "for i in range(3):\n    n += i", "for i in range(3):\n    print(i)", "n;"),
         ["n = 0", "for i in range(3):", "    n += i"]),
        (("from __future__ import annotations\nx = 1", "x;"), ["x = 1"]),
        (("get_ipython().system('ls')\nx = 1", "x;"), ["x = 1"]),
    ],
)  # fmt: skip
def test_what_is_kept(codes, kept):
    assert lines(made(*codes))[: len(kept)] == kept


def test_the_value_is_printed_unless_silenced():
    assert lines(made("1 + 1")) == ["_ = 1 + 1", "if _ is not None:", "    print(_)"]
    assert lines(made("1 + 1;")) == ["1 + 1"]


def test_names_that_no_cell_binds():
    found = made("x = y", "def f(a):\n    return a + len(b)", "f(x)")
    assert found.lacking == ("b", "y")
    assert found.cells == (1, 2, 3)


def test_imports_and_marks():
    found = made("import torch.nn as nn", "m = nn.Linear(1, 1)", "m", ranks=(3,))
    assert "torch" in {each.partition(".")[0] for each in found.imports}
    assert "# Cell In[3], on every rank" in found.chosen
    assert "In[3]" not in found.before


def test_a_cell_that_failed_is_passed_over():
    assert lines(made("x = = 1", "x = 1", "x;")) == ["x = 1", "x"]
    with pytest.raises(SyntaxError, match=r"In\[2\]"):
        made("x = 1", "x = = 1")
