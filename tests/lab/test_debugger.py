"""JupyterLab's own debugger on cells that run on ranks: breakpoints by clicks, stacks in its sidebar."""

from __future__ import annotations

import pytest

from lab import breakpoints, pages


@pytest.mark.extensive
def test_a_breakpoint_stops_two_ranks_and_continue_frees_both(notebook):
    with breakpoints.debugging(notebook):
        cell = breakpoints.stop_two_ranks(notebook)
        notebook.screenshot("debugger")
        breakpoints.free_two_ranks(notebook, cell)
    notebook.run_cell(pages.DOWN)
    assert not notebook.console_errors
