"""JupyterLab in Chromium: the square button, and a kernel that is restarted while its cell runs."""

from __future__ import annotations

import importlib.util

import pytest

from lab.pages import DOWN, LOAD

ALL = """%%sky_remote nodes=4 framework=torch
import time
import torch
import torch.distributed as dist
import skyward_nb as sky
rank = sky.instance_info().rank
kept = torch.ones(2)
dist.all_reduce(kept)
"""
STUCK = """%%sky_remote
print("now they wait")
if rank == 3:
    time.sleep(600)
dist.all_reduce(kept)
"""

LONG = """%%sky_remote nodes=2
import pathlib, time
print("it has begun")
while not pathlib.Path("GO").exists():
    time.sleep(0.02)
print("it has ended")
"the value"
"""

RESTART = "jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
AFTER = "%%sky_remote\ndist.all_reduce(kept)\nkept.tolist()"


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_the_square_button_frees_ranks_that_wait_in_a_collective(notebook):
    every, stuck, after = map(notebook.add_cell, (ALL, STUCK, AFTER))
    notebook.run_cell(every)
    notebook.run_cell(stuck, wait=False)
    notebook.output(stuck).get_by_text("now they wait").locator("visible=true").first.wait_for()
    notebook.interrupt()
    notebook.wait_idle()
    seen = notebook.output_text(stuck)
    assert "Interrupted on ranks 0-3; namespaces kept on all ranks" in seen
    assert "waited in all_reduce" in seen
    assert seen.count("KeyboardInterrupt") == 1
    notebook.screenshot("interrupted")
    notebook.run_cell(after)
    assert "[0-3] [16.0, 16.0]" in notebook.output_text(after)
    notebook.run_cell(DOWN)
    assert not notebook.console_errors


@pytest.mark.extensive
def test_a_run_outlives_the_kernel_that_is_restarted(notebook):
    long, attach = notebook.add_cell(LONG), notebook.add_cell("%sky attach")
    notebook.run_cell(long, wait=False)
    notebook.output(long).get_by_text("it has begun").locator("visible=true").first.wait_for()
    notebook.page.evaluate(RESTART)
    notebook.wait_idle()
    notebook.run_cell(LOAD)
    said = notebook.output_text(LOAD)
    assert "of this notebook is alive from an earlier kernel" in said
    assert "has been running for" in said
    notebook.run_cell(attach, wait=False)
    notebook.output(attach).get_by_text("it has begun").locator("visible=true").first.wait_for()
    notebook.screenshot("attached")
    go = notebook.path.parent / "GO"
    go.touch()
    notebook.wait_idle()
    go.unlink()
    seen = notebook.output_text(attach)
    assert seen.count("it has begun") == seen.count("it has ended") == 1
    assert "[0-1] 'the value'" in seen
    notebook.run_cell(DOWN)
    # What the first kernel still says of its widgets comes when Lab has forgotten them.
    errors = [each for each in notebook.console_errors if not each.startswith("Comm not found")]
    assert not errors
