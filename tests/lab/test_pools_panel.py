"""The panel "Pools" and the item of the status bar, as people use them in JupyterLab."""

from __future__ import annotations

import os
import re

from waiting import until

from lab import cell_tools, pool_cards

SAMPLE = """() => {
  const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  window.notBusy = 0;
  window.sampling = setInterval(() => { window.notBusy += kernel.status !== 'busy'; }, 50);
}"""
# Lab takes the end of a subshell's request for the cell's; the kernel says some time later that it is busy, twice.
STAYS_BUSY = """() => {
  const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  window.busyFor = kernel.status === 'busy' ? (window.busyFor || 0) + 1 : 0;
  return window.busyFor > 50;
}"""


def test_a_pool_from_its_first_run_to_its_end(notebook, panel, status, go):
    cell = pool_cards.begin_run(notebook)
    card = panel.locator(".sky-pool")

    # What is asked while the cell runs, its kernel does not notice.
    notebook.output(cell).get_by_text("waiting for GO").locator("visible=true").first.wait_for()
    notebook.page.wait_for_function(STAYS_BUSY, polling=50)
    notebook.page.evaluate(SAMPLE)
    card.get_by_text(re.compile("^epoch 4/10 · 40%")).wait_for()
    assert card.locator("progress").evaluate("bar => bar.value") == 0.4
    pool_cards.press(card, "Where?")
    card.get_by_text(re.compile(r"in Cell In\[\d+\], line \d+")).wait_for()
    notebook.screenshot("panel-where")
    pool_cards.press(card, "Output")
    card.get_by_text(re.compile("waiting for GO")).wait_for()
    assert notebook.running
    assert notebook.page.evaluate("clearInterval(window.sampling) || window.notBusy") == 0

    pool_cards.interrupt_run(notebook, cell)
    pool_cards.kill_rank_1(notebook)
    notebook.screenshot("panel-lost")
    pool_cards.press(card, "Restart")
    pool_cards.confirm(notebook, "Restart")
    card.get_by_text(re.compile("^rank 1: ")).wait_for(state="hidden")
    until(lambda: "sky-trouble" not in status.get_attribute("class"))

    # Down, while a cell runs on it: the run is over before the kernel gets the line.
    notebook.run_cell(cell, wait=False)
    card.get_by_text(re.compile("has been running for")).wait_for()
    pool_cards.take_down(notebook)
    assert not notebook.console_errors


def test_a_pool_that_nobody_conducts(notebook, panel, make):
    make(name="left", nodes=1).leave()
    card = panel.locator(".sky-pool")
    card.get_by_text("left by a kernel that is gone").wait_for()
    assert not card.get_by_role("button", name="Interrupt").is_enabled()
    pool_cards.press(card, "Attach")
    card.get_by_text(re.compile("^In a new cell of lab.ipynb")).wait_for()
    assert cell_tools.source(notebook) == "%sky attach pool=left"
    pool_cards.press(card, "Down")
    pool_cards.confirm(notebook, "Cancel")
    assert card.is_visible()
    pool_cards.take_down(notebook)
    assert not notebook.console_errors


def test_a_pool_that_another_process_conducts_is_left_to_it(notebook, panel, make):
    make(name="theirs", nodes=1)
    card = panel.locator(".sky-pool")
    card.get_by_text(f"process {os.getpid()}").wait_for()
    down = card.get_by_role("button", name="Down", exact=True)
    assert not down.is_enabled()
    assert "end it there" in down.get_attribute("title")


def test_the_form_writes_the_line_of_a_new_pool(notebook, panel):
    panel.get_by_text("New pool").click()
    panel.get_by_label("nodes").fill("2")
    panel.get_by_label("framework").select_option("torch")
    notebook.screenshot("panel-form")
    pool_cards.press(panel, "Put into the notebook")
    until(lambda: cell_tools.source(notebook) == "%sky up nodes=2 framework=torch")
    assert not notebook.console_errors
