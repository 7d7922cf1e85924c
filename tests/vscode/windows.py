"""A window of VS Code in Chromium with one notebook: run, stopped, typed in, read."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlencode, urlsplit

from lab.pages import SCREENSHOTS
from later import Later
from waiting import until

from vscode.code_servers import CodeServer

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Frame, Locator, Page, Request

nbformat = Later("nbformat")
playwright_errors = Later("playwright.sync_api")

# The Jupyter extension tries whether these can be reached, whatever a notebook shows.
_TRIED = ("https://unpkg.com/", "https://cdn.jsdelivr.net/npm/requirejs@2.3.6/bin/r.min.js")
_LOAD_MS = 180_000
_MS = 90_000


@dataclass
class NotebookWindow:
    """One notebook in a window of its own, with a kernel of its own once a cell runs."""

    server: CodeServer
    context: BrowserContext
    name: str
    page: Page = field(init=False)
    asked_elsewhere: list[str] = field(default_factory=list[str])
    """What it asked of others than our server."""

    def __post_init__(self) -> None:
        self.page = self.context.new_page()
        self.prefer("dark")
        self.page.set_default_timeout(_MS)
        self.page.on("request", self._on_request)
        asked = urlencode({"folder": str(self.server.root)})
        self.page.goto(f"{self.server.url}?{asked}", timeout=_LOAD_MS)
        # By an address, or before the window knows what kind of file it is, it would be opened as text.
        listed = self.page.locator(".explorer-item:not(.unknown-lang-file-icon)")
        listed.get_by_text(self.name, exact=True).dblclick(timeout=_LOAD_MS)
        self.page.locator(".notebookOverlay .code-cell-row").first.wait_for(timeout=_LOAD_MS)
        self.page.keyboard.press("Control+B")

    def _on_request(self, request: Request) -> None:
        # What a webview asks of itself, by a host that there is not: its service worker answers.
        own = urlsplit(request.url).netloc.endswith(".vscode-resource.vscode-cdn.net")
        if own or request.url in _TRIED:
            return
        if not request.url.startswith((self.server.url, "data:", "blob:")):
            self.asked_elsewhere.append(request.url)

    def press(self, label: str) -> None:
        """Press a button of the notebook's toolbar."""
        self.page.locator(".notebook-label").get_by_text(label, exact=True).click(timeout=_LOAD_MS)

    def run_all(self) -> None:
        """Run every cell, once its kernel is chosen."""
        self.page.locator(".kernel-label", has_text="Python 3").wait_for(timeout=_LOAD_MS)
        self.press("Run All")

    def cell(self, text: str) -> Locator:
        """The cell that holds this text."""
        return self.page.locator(".code-cell-row", has=self.page.get_by_text(text))

    def run(self, text: str) -> None:
        """Run the cell that holds this text, by the button beside it."""
        cell = self.cell(text)
        cell.hover()
        cell.locator(".run-button-container .codicon-notebook-execute").click()

    @property
    def outputs(self) -> Frame:
        """The frame in which VS Code draws what cells show."""
        found = until(self._outputs_frame, _MS / 1000)
        assert found is not None
        return found

    def drawn(self) -> str:
        """The text of what cells show; nothing while its frame is made anew, as it is once a folder is trusted."""
        with contextlib.suppress(playwright_errors.Error):
            frame = self._outputs_frame()
            return frame.locator("body").inner_text(timeout=2000) if frame else ""
        return ""

    def _outputs_frame(self) -> Frame | None:
        drawn = "document.querySelector('#container .output_container') !== null"
        # Frames come and go while a window loads.
        frames = [each for each in self.page.frames if "webview" in each.url]
        return next(
            (each for each in frames if not each.is_detached() and each.evaluate(drawn)), None
        )

    def prefer(self, scheme: Literal["dark", "light"]) -> None:
        """Prefer a colour scheme, as a person's desktop does; VS Code follows."""
        self.page.emulate_media(color_scheme=scheme)

    def completed(self, text: str) -> list[str]:
        """What is offered where `text` is typed at the end of the last cell that is in sight, which is then as before."""
        editor = self.page.locator(".code-cell-row .monaco-editor").last
        editor.click()
        self.page.keyboard.press("Control+End")
        self.page.keyboard.type(text, delay=20)
        found = until(self._offered, _MS / 1000)
        self.page.keyboard.press("Escape")
        for _ in text:
            self.page.keyboard.press("Backspace")
        return found

    def _offered(self) -> list[str]:
        """What is offered at the cursor; nothing where its kernel took longer than VS Code waits."""
        self.page.keyboard.press("Control+Space")
        shown = self.page.locator(".suggest-widget.visible")
        asked = shown.locator(".monaco-list-row .label-name, .message:not(:empty)")
        asked.locator("visible=true").filter(has_not_text="Loading").first.wait_for()
        found = shown.locator(".monaco-list-row .label-name").all_inner_texts()
        if not found:
            self.page.keyboard.press("Escape")
        return found

    def screenshot(self, name: str) -> None:
        """Keep a picture of the window in `build/screenshots`."""
        self.page.screenshot(path=SCREENSHOTS / f"vscode-{name}.png")

    def close(self) -> None:
        self.page.close()


def write_notebook(
    server: CodeServer, name: str, *cells: str, shown: dict[str, object] | None = None
) -> None:
    """Write a notebook of these cells whose kernel is the server's; the last has `shown` this bundle."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    if shown is not None:
        notebook.cells[-1].outputs = [nbformat.v4.new_output("display_data", data=shown)]
    notebook.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, server.root / name)
