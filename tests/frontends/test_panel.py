"""The extension in JupyterLab 4.4: panel, status item, button, menu and marks of cells, and its debugger on ranks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab import audits, breakpoints, cell_tools, pages, pool_cards
from leaks import leaves_nothing

from frontends.front_ends import FRONT_ENDS, opened, screenshot

pytestmark = [
    pytest.mark.extensive,
    pytest.mark.parametrize(
        "served",
        [each for each in FRONT_ENDS if each.environment == "lab44"],
        indirect=True,
        ids=lambda each: each.environment,
        scope="module",
    ),
]


@pytest.fixture(scope="module")
def page(browser, served) -> Iterator[pages.NotebookPage]:
    """One notebook for all tests here."""
    with leaves_nothing():
        made = opened(browser, served, "panel.ipynb")
        made.run_cell(pages.LOAD)
        yield made
        made.check_asked_only_us()
        made.context.close()
        served[1].end_kernels()


@pytest.fixture
def notebook(page):
    """It, whose console has said nothing, and after the test nor has it."""
    page.console_errors.clear()
    yield page
    assert not page.console_errors


def test_a_pool_is_seen_interrupted_loses_a_rank_and_is_taken_down(notebook, served):
    cell = pool_cards.begin_run(notebook)
    screenshot(notebook, served, "panel")
    pool_cards.interrupt_run(notebook, cell)
    pool_cards.kill_rank_1(notebook)
    screenshot(notebook, served, "panel-lost")
    panel = pool_cards.open_panel(notebook)
    panel.get_by_text("New pool").click()
    faults = audits.serious_faults(notebook, ".sky-panel", ".sky-status")
    panel.get_by_text("New pool").click()
    faults += audits.faults_beside_the_panel(notebook, "lab44")
    pool_cards.take_down(notebook)
    assert not faults


@pytest.mark.parametrize("text", ["x = 1", "", "\n  é\n\n"])
def test_the_button_of_a_cell_puts_the_line_in_and_takes_it_out(notebook, text):
    cell_tools.put_in_and_take_out(notebook, text)


def test_a_line_that_is_taken_out_comes_back(notebook):
    cell_tools.take_out_and_put_back(notebook)


def test_a_line_that_failed_is_marked_until_the_next_run(notebook, served):
    cell = cell_tools.add_failed_cell(notebook)
    screenshot(notebook, served, "failed-line")
    cell_tools.run_without_failure(notebook, cell)


def test_a_breakpoint_stops_two_ranks_and_continue_frees_both(notebook, served):
    with breakpoints.debugging(notebook):
        cell = breakpoints.stop_two_ranks(notebook)
        screenshot(notebook, served, "debugger")
        breakpoints.free_two_ranks(notebook, cell)
    notebook.run_cell(pages.DOWN)
