"""Steps with Lab's own debugger on cells that run on ranks: breakpoints by clicks, stacks in its sidebar."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.pages import NotebookPage

_STEP = """%%sky_remote nodes=2 timeout=20s
import skyward_nb as sky
def step(batch):
    scale = batch * 10
    scale += 1
    return scale
step(sky.rank() + 4)"""
_LINE = 5
_BUG = ".jp-DebuggerBugButton"


@contextmanager
def debugging(notebook: NotebookPage) -> Iterator[None]:
    """Turn the debugger on for the block."""
    _press_bug(notebook, is_on=True)
    yield
    _press_bug(notebook, is_on=False)


def _press_bug(notebook: NotebookPage, *, is_on: bool) -> None:
    notebook.page.locator(_BUG).click()
    notebook.page.locator(f"{_BUG}[aria-pressed='{str(is_on).lower()}']").wait_for()


def _break_at(notebook: NotebookPage, cell: int, line: int) -> None:
    """Click into the gutter of a line, and wait until the sidebar lists it."""
    gutter = notebook.cell(cell).locator(".cm-breakpoint-gutter .cm-gutterElement")
    # The first element only gives the gutter its width.
    gutter.nth(line).click()
    listed = notebook.page.locator(".jp-DebuggerBreakpoint-line")
    listed.get_by_text(str(line), exact=True).wait_for(state="attached")


def stop_two_ranks(notebook: NotebookPage) -> int:
    """Run a new cell with a breakpoint, at which both of its ranks stand then; returns its index."""
    cell = notebook.add_cell(_STEP)
    _break_at(notebook, cell, _LINE)
    notebook.run_cell(cell, wait=False)
    stack = notebook.page.locator(".jp-DebuggerCallstack-body li, .jp-DebuggerCallstackFrame")
    for rank in (0, 1):
        stack.get_by_text(f"rank {rank}: step").first.wait_for()
    live = notebook.output(cell).locator(".sky-live")
    live.get_by_text("ranks 0-1 stand at a breakpoint").locator("visible=true").first.wait_for()
    assert notebook.running
    return cell


def free_two_ranks(notebook: NotebookPage, cell: int) -> None:
    """Continue: both ranks run that cell to its end."""
    notebook.page.evaluate("jupyterapp.commands.execute('debugger:continue')")
    notebook.wait_idle()
    assert "[0] 41" in notebook.output_text(cell)
    assert "[1] 51" in notebook.output_text(cell)
