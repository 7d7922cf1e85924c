"""JupyterLab 4.4, Notebook 7 and nbclassic in Chromium: live, finished, stopped, and without a magic line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cluster.box import Box, why_no_boxes
from lab import labs, pages
from lab.apart import Apart
from leaks import leaves_nothing

from frontends.classic import ClassicPage
from frontends.environments import python_of
from skyward_nb.kernel import kernelspecs

if TYPE_CHECKING:
    from playwright.sync_api import Browser

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


@dataclass(frozen=True)
class FrontEnd:
    """Its environment, the module that serves it, the way to a notebook, and who drives its page."""

    environment: str
    module: str
    route: str
    page: type[pages.NotebookPage] = pages.NotebookPage


FRONT_ENDS = [
    FrontEnd("lab44", "jupyterlab", "doc/tree"),
    FrontEnd("notebook7", "notebook", "notebooks"),
    FrontEnd("nbclassic", "nbclassic", "notebooks", ClassicPage),
]


@pytest.fixture(scope="module")
def apart() -> Iterator[Apart]:
    if reason := pages.missing():
        pytest.skip(reason)
    made = Apart(None if why_no_boxes() else Box("frontends"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def browser(apart: Apart, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with pages.chromium_at(apart, tmp_path_factory.mktemp("chromium")) as chromium:
        yield chromium


@pytest.fixture(scope="module", params=FRONT_ENDS, ids=lambda each: each.environment)
def served(request, apart: Apart, tmp_path_factory: pytest.TempPathFactory):
    """(front end, its server)."""
    python = python_of(request.param.environment)
    folder = tmp_path_factory.mktemp(request.param.environment)
    with labs.lab_server(folder, apart, python, request.param.module) as server:
        yield request.param, server


def opened(browser: Browser, served, name: str, **kernel: str) -> pages.NotebookPage:
    front_end, server = served
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    pages.write_notebook(server.root / name, **kernel)
    made = front_end.page(server, context, name, front_end.route)
    # What Notebook 7 misses of its own as it opens.
    made.console_errors.clear()
    return made


def screenshot(page: pages.NotebookPage, served, what: str) -> None:
    page.screenshot(f"{served[0].environment}-{what}")


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
        assert not notebook.asked_elsewhere
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
        assert not notebook.asked_elsewhere
        notebook.context.close()
        served[1].end_kernels()
