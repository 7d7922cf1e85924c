"""Steps in the panel "Pools", with what each of them shows there and in the status bar."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING

from waiting import until

from skyward_nb.pool import registry

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from lab.pages import NotebookPage

_WAITS = """%%sky_remote nodes=3
import pathlib, time
import skyward_nb as sky
print("waiting for GO")
for step in sky.progress(range(10), desc="epoch"):
    time.sleep(0.2)
    while step == 4 and not pathlib.Path("GO").exists():
        time.sleep(0.05)
print("over")
"""


def open_panel(notebook: NotebookPage) -> Locator:
    """Show the panel."""
    notebook.page.evaluate("jupyterapp.shell.activateById('skyward-nb-pools')")
    return notebook.page.locator("#skyward-nb-pools")


def status_item(notebook: NotebookPage) -> Locator:
    """The item of the status bar."""
    return notebook.page.locator("button.sky-status")


def card(notebook: NotebookPage) -> Locator:
    """The card of the only pool."""
    return notebook.page.locator(".sky-pool")


def press(there: Locator, label: str) -> None:
    """Click a button of a card or of the panel."""
    there.get_by_role("button", name=label, exact=True).click()


def confirm(notebook: NotebookPage, label: str) -> None:
    """Click a button of the dialog that asks."""
    press(notebook.page.locator(".jp-Dialog"), label)


def begin_run(notebook: NotebookPage) -> int:
    """Where no pool is up, run a cell on three ranks of a new one, which waits for the file GO; returns its index."""
    open_panel(notebook).get_by_text("No pool is up").wait_for()
    status_item(notebook).get_by_text("no pool", exact=True).wait_for()
    cell = notebook.add_cell(_WAITS)
    notebook.run_cell(cell, wait=False)
    there = card(notebook)
    there.get_by_text(re.compile("has been running for")).wait_for()
    there.get_by_text(f"in use by {notebook.name}").wait_for()
    status_item(notebook).get_by_text("1 pool · 3 ranks", exact=True).wait_for()
    assert there.locator(".sky-chip[data-state='running']").all_text_contents() == ["0", "1", "2"]
    return cell


def interrupt_run(notebook: NotebookPage, cell: int) -> None:
    """End the run of a cell by the card's button."""
    press(card(notebook), "Interrupt")
    notebook.wait_idle()
    assert "Interrupted" in notebook.output_text(cell)
    until(lambda: card(notebook).get_attribute("data-state") == "idle")


def kill_rank_1(notebook: NotebookPage) -> None:
    """It is named, and its chip struck out, until all begin anew."""
    (entry,) = registry.entries()
    os.kill(until(lambda: registry.condition(entry)).pids[1], signal.SIGKILL)
    card(notebook).get_by_text(re.compile("^rank 1: killed by SIGKILL")).wait_for()
    assert card(notebook).locator(".sky-chip[data-state='lost']").all_text_contents() == ["1"]
    assert "sky-trouble" in status_item(notebook).get_attribute("class")


def take_down(notebook: NotebookPage) -> None:
    """Take the only pool down by its card's buttons."""
    press(card(notebook), "Down")
    confirm(notebook, "Down")
    card(notebook).wait_for(state="detached")
    status_item(notebook).get_by_text("no pool", exact=True).wait_for()
    # The card goes as the agent stops to listen, a moment before it has ended.
    until(lambda: not registry.entries())
