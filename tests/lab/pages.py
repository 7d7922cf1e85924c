"""Notebooks in real Chromium: opened, run, read, saved, and opened again."""

from __future__ import annotations

import copy
import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import psutil
from later import Later

from lab.apart import Apart
from lab.labs import RENDERER, LabServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, Request

nbformat = Later("nbformat")

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
_MS = 40_000
_LOAD_MS = 120_000
"""Of a page until it is loaded, and its kernel idle for the first time."""
LOAD, DOWN = 0, 1
"""Cells of each notebook here: the extension is loaded, pools are taken down."""

# A cell is run by Lab's own command, and counted until Lab says that it is over.
_RUN = """index => {
  const panel = jupyterapp.shell.currentWidget;
  panel.content.activeCellIndex = index;
  panel.content.deselectAll();
  window.cellsRunning = (window.cellsRunning || 0) + 1;
  jupyterapp.commands.execute('notebook:run-cell').finally(() => { window.cellsRunning -= 1; });
}"""
_ADD = """source => {
  const cells = window.jupyterapp.shell.currentWidget.content.model.sharedModel;
  return cells.insertCell(cells.cells.length, {cell_type: 'code', source}) && cells.cells.length - 1;
}"""
# The kernel's status alone does not tell: Lab makes a subshell for the first widget it meets, takes
# the end of that request for the end of the cell, and shows an idle kernel while the cell runs.
_IDLE = """() => {
  const panel = window.jupyterapp?.shell.currentWidget;
  const kernel = panel?.sessionContext?.session?.kernel;
  const prompts = [...document.querySelectorAll('.jp-InputPrompt')];
  return kernel?.status === 'idle' && !window.cellsRunning
    && !prompts.some(prompt => prompt.textContent.includes('*'));
}"""

_HIDE = """hidden => {
  const visibilityState = hidden ? 'hidden' : 'visible';
  Object.defineProperty(document, 'visibilityState', {configurable: true, value: visibilityState});
  document.dispatchEvent(new Event('visibilitychange'));
}"""


RENDERER_ON = f"""new MutationObserver(() => {{
  const config = document.getElementById('jupyter-config-data');
  if (config?.textContent.includes('{RENDERER}')) {{
    config.textContent = config.textContent.replace('{RENDERER}', 'none:none');
  }}
}}).observe(document, {{childList: true, subtree: true}});"""
"""A script of pages in which the renderer of records is on, which the server's settings turn off."""


def missing() -> str:
    """Why there can be no JupyterLab in a browser here; empty if there can."""
    for package in ("jupyterlab", "ipywidgets", "playwright"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed"
    return "" if chromium() else "chromium is not installed"


def chromium() -> str | None:
    """Chromium, or what is built from it, where it is installed; first of all what draws no window of a browser."""
    names = (
        "chromium-headless-shell",
        "chromium",
        "chromium-browser",
        "google-chrome",
        "google-chrome-stable",
    )
    return next(filter(None, map(shutil.which, names)), None)


def browser_flags() -> list[str]:
    """Flags of Chromium under which it talks to nobody but our server."""
    return [
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-gpu",
        "--disable-quic",
        "--disable-sync",
        "--no-first-run",
    ]


@contextmanager
def chromium_at(apart: Apart, home: Path) -> Iterator[Browser]:
    """Chromium with a profile of its own below `home`.

    It ends with the block: Playwright keeps an event loop running in this thread as long as it lives,
    over which tests that use asyncio would stumble.
    """
    from playwright.sync_api import sync_playwright

    before = set(psutil.Process().children(recursive=True))
    # Profile, certificates and caches: whatever it writes, it writes here.
    env = {**os.environ, "HOME": str(home), "TMPDIR": str(home)}
    program = chromium()
    assert program is not None
    command = apart.command(program, home / "chromium")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=command, args=browser_flags(), env=env
        )
        yield launched
        started = set(psutil.Process().children(recursive=True)) - before
        launched.close()
    left = psutil.wait_procs(started, timeout=60)[1]
    assert not left, f"left behind: {left}"


@contextmanager
def with_renderer(lab: LabServer, browser: Browser, name: str) -> Iterator[NotebookPage]:
    """The notebook of this name, which is there already, in a page in which runs are drawn from their records."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    context.add_init_script(RENDERER_ON)
    made = NotebookPage(lab, context, name)
    try:
        yield made
        made.check_asked_only_us()
    finally:
        context.close()
        lab.end_kernel_of(name)


@dataclass
class NotebookPage:
    """One notebook, open in a page of its own; other front ends have scripts of their own for its steps."""

    ADD: ClassVar[str] = _ADD
    RUN: ClassVar[str] = _RUN
    IDLE: ClassVar[str] = _IDLE
    INTERRUPT: ClassVar[str] = "jupyterapp.commands.execute('notebook:interrupt-kernel')"

    server: LabServer
    context: BrowserContext
    name: str
    # One document and nothing around it: lighter than the whole of Lab, and the same notebook.
    route: str = "doc/tree"
    in_mid_run: bool = False
    """Whether it is opened while a cell runs."""
    page: Page = field(init=False)
    console_errors: list[str] = field(default_factory=list[str])
    """What the page reported as errors. A plain notebook reports none, so nothing is left out."""
    asked_elsewhere: list[str] = field(default_factory=list[str])
    """What it asked of others than our server."""

    def __post_init__(self) -> None:
        self._new_page()
        self._open()

    def in_another_tab(self) -> NotebookPage:
        """The same notebook in a tab of its own, whatever goes on in it."""
        other = copy.copy(self)
        other._new_page()
        other._goto()
        other._wait_until_built()
        return other

    def _new_page(self) -> None:
        self.page = self.context.new_page()
        self.page.set_default_timeout(_MS)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.console_errors.append(f"{error.stack}"))
        self.page.on("request", self._on_request)

    def _open(self) -> None:
        self._goto()
        if not self.in_mid_run:
            self.wait_idle(_LOAD_MS)

    def _goto(self) -> None:
        address = f"{self.server.url}{self.route}/{self.name}?token={self.server.token}"
        self.page.goto(address, timeout=_LOAD_MS)

    def _wait_until_built(self) -> None:
        """Until the notebook is there; its kernel may be busy for long."""
        built = "() => globalThis.jupyterapp?.shell.currentWidget?.context?.isReady"
        self.page.wait_for_function(built, timeout=_LOAD_MS)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.console_errors.append(message.text)

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.server.url, "data:", "blob:")):
            self.asked_elsewhere.append(request.url)

    def check_asked_only_us(self) -> None:
        """Fails, with the addresses, where the page has asked others than our server."""
        assert not self.asked_elsewhere, "\n".join(["asked of others:", *self.asked_elsewhere])

    def add_cell(self, source: str) -> int:
        """Add a cell at the end; returns its index."""
        return self.page.evaluate(self.ADD, source)

    def run_cell(self, index: int, *, wait: bool = True) -> None:
        """Run a cell, and wait until it is over unless told otherwise."""
        self.page.evaluate(self.RUN, index)
        if wait:
            self.wait_idle()

    def wait_idle(self, limit: int = _MS) -> None:
        """Wait until no cell runs and the kernel is idle, for so many milliseconds at most."""
        # Not at each frame, which would have the page drawn for nobody.
        self.page.wait_for_function(self.IDLE, polling=50, timeout=limit)

    @property
    def running(self) -> bool:
        """Whether a cell runs."""
        return not self.page.evaluate(self.IDLE)

    def interrupt(self) -> None:
        """Press the square button."""
        self.page.evaluate(self.INTERRUPT)

    def cell(self, index: int) -> Locator:
        """A cell, scrolled to, since Lab does not lay out what is far away."""
        cell = self.page.locator(f'.jp-Cell[data-windowed-list-index="{index}"]')
        cell.scroll_into_view_if_needed()
        return cell

    def output(self, index: int) -> Locator:
        """The output area of a cell."""
        return self.cell(index).locator(".jp-Cell-outputArea")

    def output_html(self, index: int) -> str:
        """The output area of a cell as the page has it."""
        return self.output(index).inner_html()

    def output_text(self, index: int) -> str:
        """What is to be read under a cell, without Lab's prompts."""
        parts = self.output(index).locator(".jp-OutputArea-output").all()
        return "\n".join(part.inner_text() for part in parts)

    def save(self) -> None:
        """Save, and wait until it is on disk."""
        self.page.evaluate("jupyterapp.commands.execute('docmanager:save')")

    @property
    def path(self) -> Path:
        """Where the notebook lies."""
        return self.server.root / self.name

    def saved(self) -> nbformat.NotebookNode:
        """The notebook as it lies on disk."""
        return nbformat.read(self.path, as_version=4)

    def reopen(self, *, trusted: bool = True) -> None:
        """Leave the page and open the saved file in it anew, with a new kernel.

        Not `trusted`: as it is seen by somebody who got the file from elsewhere.
        """
        self.page.goto("about:blank")
        self.server.end_kernel_of(self.name)
        if not trusted:
            # The server's signature is of what the file said before.
            notebook = self.saved()
            notebook.metadata["from"] = "elsewhere"
            nbformat.write(notebook, self.path)
        self._open()

    @contextmanager
    def beside(self, *, in_mid_run: bool = False) -> Iterator[NotebookPage]:
        """The same notebook in another tab, which is closed in the end."""
        other = NotebookPage(self.server, self.context, self.name, in_mid_run=in_mid_run)
        yield other
        other.page.close()

    def reload(self) -> None:
        """Leave the page and open the saved file in it anew, with the kernel that it had."""
        self.page.goto("about:blank")
        self._goto()
        self._wait_until_built()

    def set_hidden(self, hidden: bool) -> None:
        """Have the page say that it is hidden, as one in another tab does, or that it is seen."""
        self.page.evaluate(_HIDE, hidden)

    def screenshot(self, name: str) -> Path:
        """Keep a picture of the page in `build/screenshots`."""
        path = SCREENSHOTS / f"{name}.png"
        self.page.screenshot(path=path)
        return path


def write_notebook(
    path: Path, kernel_name: str = "python3", display_name: str = "Python 3"
) -> None:
    """Write a notebook of the cells `LOAD` and `DOWN`."""
    cells = [nbformat.v4.new_code_cell(each) for each in ("%load_ext skyward_nb", "%sky down")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {
        "name": kernel_name,
        "display_name": display_name,
        "language": "python",
    }
    nbformat.write(notebook, path)
