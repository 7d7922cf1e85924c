"""The kernel "Python on a pool" in JupyterLab: no line above the cells, and the stop button."""

import pytest

from lab import pages
from skyward_nb.kernel import kernelspecs

RANKS = "x = sky.rank()\nprint('rank', x)\nx"
FAILS = "import os\n\n1 / x"
SLEEPS = "print('sleeping')\nimport time\ntime.sleep(100)"


@pytest.mark.extensive
def test_cells_without_a_line_above_them_run_on_ranks(page, lab):
    pages.write_notebook(lab.root / "pool.ipynb", kernelspecs.NAME, kernelspecs.TITLE)
    notebook = pages.NotebookPage(lab, page.context, "pool.ipynb")
    try:
        ran = notebook.add_cell(RANKS)
        notebook.run_cell(ran)
        seen = notebook.output_text(ran)
        assert all(word in seen for word in ("2 ranks", "every cell: nodes=2", "rank 1", "[1] 1"))
        failed = notebook.add_cell(FAILS)
        notebook.run_cell(failed)
        assert "line 3" in notebook.output_text(failed)
        assert "ZeroDivisionError" in notebook.output_text(failed)
        notebook.screenshot("pool-kernel")
        slept = notebook.add_cell(SLEEPS)
        notebook.run_cell(slept, wait=False)
        notebook.output(slept).get_by_text("sleeping").locator("visible=true").first.wait_for()
        notebook.interrupt()
        notebook.wait_idle()
        assert "KeyboardInterrupt" in notebook.output_text(slept)
        here = notebook.add_cell("%%local\n'x' in globals()")
        notebook.run_cell(here)
        assert notebook.output_text(here).strip() == "False"
        assert not notebook.console_errors
    finally:
        notebook.page.close()
        lab.end_kernel_of("pool.ipynb")
