"""axe-core on pages: what is in the way of people who see, hear or move less, as far as a program can tell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab import cell_tools, notices

if TYPE_CHECKING:
    from lab.pages import NotebookPage

_ROOT = Path(__file__).parents[2]
_PLACES = (
    "labextension/node_modules/axe-core/axe.min.js",
    "build/frontends/axe/axe_playwright_python/axe.min.js",
)
LOOKS = [("Dark", 420), ("Light", 1200)]
"""Themes, and widths of the page in pixels."""

# What ranks displayed is theirs.
_AUDIT = """async selectors => (await axe.run({
  include: selectors.map(each => [each]), exclude: [['.sky-figure']],
})).violations"""


def axe_core() -> str:
    """The program; skips the test where it is not installed."""
    for place in _PLACES:
        if (_ROOT / place).is_file():
            return (_ROOT / place).read_text()
    pytest.skip("axe-core is not installed: make test-frontends does it")


def serious_faults(notebook: NotebookPage, *selectors: str) -> list[tuple[str, list[str]]]:
    """What it finds that is serious or worse: the rule, and the elements."""
    page = notebook.page
    if not page.evaluate("'axe' in window"):
        page.add_script_tag(content=axe_core())
    return [
        (
            each["id"],
            [f"{node['html'][:160]} {node['any'][:1]}" for node in each["nodes"]][:6],
        )
        for each in page.evaluate(_AUDIT, list(selectors))
        if each["impact"] in ("serious", "critical")
    ]


def faults_beside_the_panel(notebook: NotebookPage, name: str) -> list[tuple[str, list[str]]]:
    """Those in the word about a run that has ended and in its cell's open menu; `name` is of their picture."""
    with notices.told_of_an_end(notebook) as cell:
        cell_tools.open_menu(notebook, cell)
        notebook.screenshot(f"menu-and-notice-{name}")
        faults = serious_faults(notebook, ".lm-Menu", ".Toastify__toast")
        notebook.page.keyboard.press("Escape")
    return faults


def dress(notebook: NotebookPage, theme: str) -> None:
    """Change the theme, to `Light` or `Dark`, and wait until it is there."""
    page = notebook.page
    page.evaluate(
        "theme => jupyterapp.commands.execute('apputils:change-theme', {theme})",
        f"JupyterLab {theme}",
    )
    is_light = str(theme == "Light").lower()
    page.locator(f"body[data-jp-theme-light='{is_light}']").wait_for(state="attached")
    page.locator("#jupyterlab-splash").wait_for(state="detached")
