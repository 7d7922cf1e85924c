"""JupyterLab's own debugger on cells that run on ranks: breakpoints by clicks, stacks and values in its sidebar."""

from __future__ import annotations

import pytest

from lab import pages

STEP = """%%sky_remote nodes=2 timeout=20s
import skyward_nb as sky
def step(batch):
    scale = batch * 10
    scale += 1
    return scale
step(sky.rank() + 4)"""
LINE = 5


def break_at(notebook, cell, line):
    """Click into the gutter of a line."""
    editor = notebook.page.locator(f'.jp-Cell[data-windowed-list-index="{cell}"]')
    editor.scroll_into_view_if_needed()
    gutter = editor.locator(".cm-breakpoint-gutter .cm-gutterElement")
    # The first element only gives the gutter its width.
    gutter.nth(line).click()
    editor.locator(".cm-breakpoint-icon").first.wait_for(state="attached")


def stack(notebook):
    return notebook.page.locator(".jp-DebuggerCallstack-body li, .jp-DebuggerCallstackFrame")


@pytest.fixture
def debugged(notebook):
    notebook.page.locator(".jp-DebuggerBugButton").click()
    notebook.page.locator(".jp-DebuggerBugButton[aria-pressed='true']").wait_for()
    yield notebook
    notebook.page.locator(".jp-DebuggerBugButton").click()
    notebook.page.locator(".jp-DebuggerBugButton[aria-pressed='false']").wait_for()
    notebook.run_cell(pages.DOWN)


@pytest.mark.extensive
def test_a_breakpoint_stops_two_ranks_and_continue_frees_both(debugged):
    page = debugged.page
    cell = debugged.add_cell(STEP)
    break_at(debugged, cell, LINE)
    debugged.run_cell(cell, wait=False)
    for rank in (0, 1):
        stack(debugged).get_by_text(f"rank {rank}: step").first.wait_for()
    live = debugged.output(cell).locator(".sky-live")
    live.get_by_text("ranks 0-1 stand at a breakpoint").locator("visible=true").first.wait_for()
    debugged.screenshot("debugger")
    assert debugged.running
    page.evaluate("jupyterapp.commands.execute('debugger:continue')")
    debugged.wait_idle()
    assert "[0] 41" in debugged.output_text(cell)
    assert "[1] 51" in debugged.output_text(cell)
    assert not debugged.console_errors
