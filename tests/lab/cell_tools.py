"""Steps with what a cell has of us: the button and the menu of its toolbar, and the mark of the line that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from lab.pages import NotebookPage

_ACTIVATE = "index => { jupyterapp.shell.currentWidget.content.activeCellIndex = index; }"
_SOURCE = "jupyterapp.shell.currentWidget.content.activeCell.model.sharedModel.getSource()"
_SET_SOURCE = """([index, source]) => {
  jupyterapp.shell.currentWidget.content.model.sharedModel.cells[index].setSource(source);
}"""
_BUTTON = ".jp-cell-toolbar [data-command='skyward-nb:toggle-remote']"
_MENU = ".jp-cell-toolbar [data-command='skyward-nb:cell-menu']"
_FAILS = """%%sky_remote nodes=2
import skyward_nb as sky

if sky.rank() == 1:
    raise ValueError("odd")
"""


def activate(notebook: NotebookPage, cell: int) -> None:
    """Make a cell the one in front."""
    notebook.page.evaluate(_ACTIVATE, cell)


def source(notebook: NotebookPage) -> str:
    """The text of the cell in front."""
    return notebook.page.evaluate(_SOURCE)


def toggle(notebook: NotebookPage, cell: int, *, is_remote: bool) -> None:
    """Press the button of the cell in front, which then runs on a pool, or here."""
    # The toolbar of the cell that was in front before may still be there.
    notebook.cell(cell).locator(_BUTTON).click()
    _wait_until_pressed(notebook, cell, is_remote=is_remote)


def _wait_until_pressed(notebook: NotebookPage, cell: int, *, is_remote: bool) -> None:
    pressed = f"{_BUTTON}[aria-pressed='{str(is_remote).lower()}']"
    notebook.cell(cell).locator(pressed).wait_for(state="attached")


def put_in_and_take_out(notebook: NotebookPage, text: str) -> None:
    """The line goes into a new cell of this text, and out again: by the button, and by undo."""
    page = notebook.page
    cell = notebook.add_cell(text)
    activate(notebook, cell)
    _wait_until_pressed(notebook, cell, is_remote=False)
    toggle(notebook, cell, is_remote=True)
    assert source(notebook) == f"%%sky_remote\n{text}"
    toggle(notebook, cell, is_remote=False)
    assert source(notebook) == text
    toggle(notebook, cell, is_remote=True)
    page.evaluate("jupyterapp.commands.execute('notebook:enter-edit-mode')")
    notebook.cell(cell).locator(".cm-content:focus").wait_for()
    page.keyboard.press("Control+z")
    _wait_until_pressed(notebook, cell, is_remote=False)
    assert source(notebook) == text


def take_out_and_put_back(notebook: NotebookPage) -> None:
    """A line that is taken out of a new cell comes back as it was, with its options."""
    text = "%%sky_remote nodes=2  framework=torch\nx"
    cell = notebook.add_cell(text)
    activate(notebook, cell)
    toggle(notebook, cell, is_remote=False)
    assert source(notebook) == "x"
    toggle(notebook, cell, is_remote=True)
    assert source(notebook) == text


def open_menu(notebook: NotebookPage, cell: int) -> Locator:
    """Open the menu of the cell in front."""
    notebook.cell(cell).locator(_MENU).click()
    menu = notebook.page.locator(".lm-Menu")
    menu.wait_for()
    return menu


def add_failed_cell(notebook: NotebookPage) -> int:
    """Run a new cell that fails on one of two ranks: its line is marked, and says so; returns its index."""
    cell = notebook.add_cell(_FAILS)
    notebook.run_cell(cell)
    mark = notebook.cell(cell).locator(".sky-failed-line")
    mark.wait_for()
    assert mark.inner_text().strip() == 'raise ValueError("odd")'
    assert mark.get_attribute("title") == "ValueError on rank 1"
    assert "sky-on-pool" in notebook.cell(cell).get_attribute("class")
    return cell


def run_without_failure(notebook: NotebookPage, cell: int) -> None:
    """Run that cell again with another text: the mark is gone."""
    notebook.page.evaluate(_SET_SOURCE, [cell, "%%sky_remote\n1"])
    notebook.run_cell(cell)
    notebook.cell(cell).locator(".sky-failed-line").wait_for(state="detached")
