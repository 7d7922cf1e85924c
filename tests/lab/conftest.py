"""JupyterLab and Chromium for the tests of this folder, where both are installed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from cluster.box import Box, why_no_boxes
from lab import labs, pages
from lab.apart import Apart
from leaks import leaves_nothing

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def lab(runtime_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[labs.LabServer]:
    """One JupyterLab for all tests of a session, with folders, a port and a token of its own."""
    if reason := pages.missing():
        pytest.skip(reason)
    # Who may make no namespaces runs no tests that do, which are what changes the network.
    apart = Apart(None if why_no_boxes() else Box("lab"))
    try:
        with labs.lab_server(tmp_path_factory.mktemp("lab"), apart) as server:
            yield server
    finally:
        apart.close()


@pytest.fixture(scope="module")
def browser(lab: labs.LabServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Chromium with a profile of its own.

    It ends with each module: Playwright keeps an event loop running in this thread as long as it
    lives, over which tests that use asyncio would stumble.
    """
    from playwright.sync_api import sync_playwright

    before = set(psutil.Process().children(recursive=True))
    home = tmp_path_factory.mktemp("chromium")
    # Profile, certificates and caches: whatever it writes, it writes here.
    env = {**os.environ, "HOME": str(home), "TMPDIR": str(home)}
    command = lab.apart.command(pages.chromium(), home / "chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=command, args=pages.browser_flags(), env=env
        )
        yield chromium
        started = set(psutil.Process().children(recursive=True)) - before
        chromium.close()
    left = psutil.wait_procs(started, timeout=10)[1]
    assert not left, f"left behind: {left}"


@pytest.fixture(scope="module")
def open_notebook(
    browser: Browser, lab: labs.LabServer, request: pytest.FixtureRequest
) -> Iterator[Callable[[list[str]], pages.NotebookPage]]:
    """Opens notebooks in pages; they, their kernels and pools are gone after the module.

    Lab takes seconds to load, so tests share a page where they can.
    """
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    opened: list[pages.NotebookPage] = []

    def open_it(cells: list[str]) -> pages.NotebookPage:
        name = f"{request.path.stem}-{len(opened)}.ipynb"
        pages.write_notebook(lab.root / name, cells)
        opened.append(pages.NotebookPage(lab, context, name))
        return opened[-1]

    with leaves_nothing():
        yield open_it
        context.close()
        lab.end_kernels()
    assert [notebook.asked_elsewhere for notebook in opened] == [[]] * len(opened)
