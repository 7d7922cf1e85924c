"""README's cells, copied into JupyterLab: what a person sees of them, and the pictures of README (`make pictures`)."""

import re
import threading
from contextlib import contextmanager

import psutil
import pytest
from docs.blocks import blocks_of
from leaks import ours

from lab import pages
from lab.pages import SCREENSHOTS


@contextmanager
def stopped(processes):
    """They stand still."""
    for each in processes:
        each.suspend()
    try:
        yield
    finally:
        for each in processes:
            each.resume()


@contextmanager
def slowed(processes):
    """They stand still for three quarters of the time: the page has the processors then, and draws them on their way."""
    is_over = threading.Event()

    def alternate():
        while not is_over.wait(0.02):
            with stopped(processes):
                is_over.wait(0.06)

    thread = threading.Thread(target=alternate)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.fixture
def notebook(browser, lab):
    """A notebook in JupyterLab as it is with the package installed: runs are drawn from their records."""
    pages.write_notebook(lab.root / "readme.ipynb")
    with pages.with_renderer(lab, browser, "readme.ipynb") as made:
        yield made


@pytest.mark.extensive
@pytest.mark.timeout(300)
@pytest.mark.torch
def test_the_cells_of_readme_run_and_their_picture_is_kept(notebook):
    pytest.importorskip("torch")
    cells = [block.code for block in blocks_of("README.md") if block.language == "python"]
    load, train, end = [notebook.add_cell(each) for each in cells]
    notebook.run_cell(load)
    notebook.run_cell(train)
    # Ranks are those of our processes that have started no others.
    ranks = [each for each in map(psutil.Process, ours()) if not each.children()]
    out = notebook.output(train)
    with slowed(ranks):
        notebook.run_cell(train, wait=False)
        epoch = out.get_by_text(re.compile(r"epoch [2-6]\d/100")).locator("visible=true").first
        epoch.wait_for(timeout=90_000)
    with stopped(ranks):
        # The widgets of the first seconds, or the record after them.
        curve = out.locator("img[alt*='loss'], .sky-curve").locator("visible=true").first
        curve.wait_for()
        notebook.page.wait_for_timeout(500)  # what is on its way is drawn
        out.screenshot(path=SCREENSHOTS / "readme-running.png")
        assert notebook.running
        assert out.get_by_text("memory").locator("visible=true").count()
    notebook.wait_idle()
    notebook.run_cell(train)  # who stood still above waited longest there
    record = notebook.output(train).locator(".sky-record[data-is='over']")
    record.get_by_text("4 ranks finished").wait_for()
    assert "memory at most" in record.inner_text()
    notebook.output(train).screenshot(path=SCREENSHOTS / "readme-finished.png")
    notebook.run_cell(end)
    assert "nothing left running" in notebook.output_text(end)
    assert not notebook.console_errors
