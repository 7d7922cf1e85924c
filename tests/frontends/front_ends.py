"""The front ends that Chromium opens, each of an environment of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab import pages
from lab.labs import LabServer

from frontends.classic import ClassicPage

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@dataclass(frozen=True)
class FrontEnd:
    """Its environment, the module that serves it, the way to a notebook, who drives its page, and whether it takes our extension."""

    environment: str
    module: str
    route: str
    page: type[pages.NotebookPage] = pages.NotebookPage
    is_extended: bool = True


FRONT_ENDS = [
    FrontEnd("lab44", "jupyterlab", "doc/tree"),
    FrontEnd("notebook7", "notebook", "notebooks"),
    FrontEnd("nbclassic", "nbclassic", "notebooks", ClassicPage, is_extended=False),
]


def opened(
    browser: Browser, served: tuple[FrontEnd, LabServer], name: str, *scripts: str, **kernel: str
) -> pages.NotebookPage:
    """A new notebook in a page of its own, in which these scripts run first."""
    front_end, server = served
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    for script in scripts:
        context.add_init_script(script)
    pages.write_notebook(server.root / name, **kernel)
    made = front_end.page(server, context, name, front_end.route)
    # What Notebook 7 misses of its own as it opens.
    made.console_errors.clear()
    return made


def screenshot(page: pages.NotebookPage, served: tuple[FrontEnd, LabServer], what: str) -> None:
    """Keep a picture of the page in `build/screenshots`."""
    page.screenshot(f"{served[0].environment}-{what}")
