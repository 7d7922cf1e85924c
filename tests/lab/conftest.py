"""JupyterLab and Chromium for the tests of this folder, where both are installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from leaks import leaves_nothing

from lab import labs, pages, pool_cards
from lab.apart import network_apart

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator


@pytest.fixture(scope="package")
def lab(runtime_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[labs.LabServer]:
    """One JupyterLab for all tests of this folder, with folders, a port and a token of its own."""
    if reason := pages.missing():
        pytest.skip(reason)
    with (
        network_apart("lab") as apart,
        labs.lab_server(tmp_path_factory.mktemp("lab"), apart) as server,
    ):
        yield server


@pytest.fixture
def go(notebook: pages.NotebookPage) -> Iterator[Path]:
    """What lets a cell go on that waits for this file."""
    path = notebook.path.parent / "GO"
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture(scope="package")
def browser(lab: labs.LabServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Chromium with a profile of its own, which ends with this folder."""
    with pages.chromium_at(lab.apart, tmp_path_factory.mktemp("chromium")) as chromium:
        yield chromium


@pytest.fixture(scope="package")
def page(browser: Browser, lab: labs.LabServer) -> Iterator[pages.NotebookPage]:
    """The notebook of all tests of this folder, as Lab takes seconds to load.

    Its first cell loads the extension; files add cells of their own. It, its kernels and pools are
    gone after the last test.
    """
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    pages.write_notebook(lab.root / "lab.ipynb")
    with leaves_nothing():
        made = pages.NotebookPage(lab, context, "lab.ipynb")
        yield made
        context.close()
        lab.end_kernels()
    made.check_asked_only_us()


@pytest.fixture(scope="module")
def loaded(page: pages.NotebookPage) -> Iterator[pages.NotebookPage]:
    """The notebook for the tests of a file: no pool is up, nor afterwards, when other notebooks list pools."""
    page.run_cell(pages.LOAD)
    page.run_cell(pages.DOWN)
    yield page
    # Where a test failed in mid-run, its cell is not waited for.
    if not page.running:
        page.run_cell(pages.DOWN)


@pytest.fixture
def notebook(loaded: pages.NotebookPage) -> pages.NotebookPage:
    """The notebook for one test, whose console has said nothing yet."""
    loaded.console_errors.clear()
    return loaded


@pytest.fixture
def panel(notebook: pages.NotebookPage) -> Locator:
    """The open panel "Pools"."""
    return pool_cards.open_panel(notebook)


@pytest.fixture
def status(notebook: pages.NotebookPage) -> Locator:
    """The item of the status bar that tells of pools."""
    return pool_cards.status_item(notebook)
