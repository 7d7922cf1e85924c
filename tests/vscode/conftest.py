"""VS Code and Chromium for the tests of this folder, where both are there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lab import pages
from lab.apart import Apart, network_apart
from leaks import leaves_nothing

from vscode.code_servers import CodeServer, code_server, missing
from vscode.windows import NotebookWindow, write_notebook

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="package")
def apart() -> Iterator[Apart]:
    """A network with nothing but loopback, where namespaces can be made."""
    if reason := pages.missing() or missing():
        pytest.skip(reason)
    with network_apart("vscode") as made:
        yield made


@pytest.fixture(scope="package")
def browser(apart: Apart, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Chromium with a profile of its own."""
    pages.SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with pages.chromium_at(apart, tmp_path_factory.mktemp("chromium")) as chromium:
        yield chromium


@pytest.fixture(scope="package")
def vscode(
    apart: Apart, browser: Browser, runtime_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CodeServer]:
    """One code-server for all tests of this folder; ended before the browser, which counts what it leaves."""
    with leaves_nothing(), code_server(tmp_path_factory.mktemp("vscode"), apart) as server:
        yield server


@pytest.fixture
def window(vscode: CodeServer, browser: Browser) -> Iterator[Callable[..., NotebookWindow]]:
    """Opens a notebook of cells that are given, each in a window of its own; all are closed in the end."""
    context = browser.new_context(viewport={"width": 1000, "height": 900})
    opened: list[NotebookWindow] = []

    def opens(name: str, *cells: str) -> NotebookWindow:
        write_notebook(vscode, name, *cells)
        opened.append(NotebookWindow(vscode, context, name))
        return opened[-1]

    yield opens
    for each in opened:
        each.screenshot(f"last-{each.name.removesuffix('.ipynb')}")
    context.close()
    elsewhere = [url for each in opened for url in each.asked_elsewhere]
    assert not elsewhere, elsewhere
