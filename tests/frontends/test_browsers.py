"""JupyterLab 4.4, Notebook 7 and nbclassic in Chromium: live, finished, stopped, and without a magic line."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab import pages
from leaks import leaves_nothing

from frontends.front_ends import opened, screenshot
from skyward_nb.kernel import kernelspecs

TRAIN = """%%sky_remote nodes=2
import pathlib, time
import skyward_nb as sky
print("it has begun on", sky.rank())
for step in sky.progress(range(10), desc="epoch"):
    while step == 5 and not pathlib.Path("GO").exists():
        time.sleep(0.02)
    sky.log(loss=1 / (step + 1))
sky.rank()
"""
SLEEPS = "print('it sleeps')\nimport time\ntime.sleep(100)"
PLAIN = "x = sky.rank()\nx"
pytestmark = pytest.mark.extensive


def test_live_and_finished(browser, served):
    with leaves_nothing():
        notebook = opened(browser, served, "train.ipynb")
        notebook.run_cell(pages.LOAD)
        cell = notebook.add_cell(TRAIN)
        notebook.run_cell(cell, wait=False)
        live = notebook.output(cell).locator(".sky-live")
        live.get_by_text("it has begun on 1").locator("visible=true").first.wait_for()
        live.locator("img[alt*='loss']").first.wait_for()
        assert notebook.running
        screenshot(notebook, served, "live")
        (Path(notebook.server.root) / "GO").touch()
        notebook.wait_idle()
        seen = notebook.output_text(cell)
        assert "2 ranks finished" in seen
        assert "[1] 1" in seen
        assert notebook.output(cell).locator(".sky-live").count() == 0
        screenshot(notebook, served, "finished")
        assert not notebook.console_errors
        notebook.check_asked_only_us()
        notebook.run_cell(pages.DOWN)
        notebook.context.close()
        served[1].end_kernels()


def test_without_a_line_above_cells(browser, served):
    with leaves_nothing():
        kernel = {"kernel_name": kernelspecs.NAME, "display_name": kernelspecs.TITLE}
        notebook = opened(browser, served, "pool.ipynb", **kernel)
        plain, slept = notebook.add_cell(PLAIN), notebook.add_cell(SLEEPS)
        notebook.run_cell(plain)
        assert "every cell: nodes=2" in notebook.output_text(plain)
        assert "[1] 1" in notebook.output_text(plain)
        notebook.run_cell(slept, wait=False)
        notebook.output(slept).get_by_text("it sleeps").locator("visible=true").first.wait_for()
        notebook.interrupt()
        notebook.wait_idle()
        assert "KeyboardInterrupt" in notebook.output_text(slept)
        screenshot(notebook, served, "pool")
        assert not notebook.console_errors
        notebook.check_asked_only_us()
        notebook.context.close()
        served[1].end_kernels()
