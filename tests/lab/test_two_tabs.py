"""One notebook in several tabs: each shows what the cell shows, whichever of them ran it, and when it was opened."""

from __future__ import annotations

import contextlib

import pytest

WAITS = """%%sky_remote nodes=2
import pathlib, time
import skyward_nb as sky
print("first words")
while not pathlib.Path("GO").exists():
    time.sleep(0.05)
print("last words")
sky.rank() * 11
"""
DIRTY = "jupyterapp.shell.currentWidget.context.model.dirty"


def seen(notebook, cell):
    """What a person sees under a cell."""
    return notebook.output(cell).inner_text()


def visible(notebook, cell, text):
    # Nothing is laid out in a tab that is behind another one.
    notebook.page.bring_to_front()
    return notebook.output(cell).get_by_text(text).locator("visible=true").first


def test_tabs_that_did_not_run_the_cell_show_its_picture_and_value(notebook, go):
    cell = notebook.add_cell(WAITS)
    notebook.save()
    with contextlib.ExitStack() as tabs:
        before = tabs.enter_context(notebook.beside())
        notebook.run_cell(cell, wait=False)
        visible(notebook, cell, "first words").wait_for()
        during = tabs.enter_context(notebook.beside(in_mid_run=True))
        others = [before, during]
        for number, each in enumerate(others):
            visible(each, cell, "first words").wait_for()
            each.screenshot(f"tab-{number}-in-mid-run")
        go.touch()
        notebook.page.bring_to_front()
        notebook.wait_idle()
        for number, each in enumerate(others):
            visible(each, cell, "2 ranks finished").wait_for()
            visible(each, cell, "[0, 11]").wait_for()
            text = seen(each, cell)
            each.screenshot(f"tab-{number}-finished")
            assert text.count("last words") == 1
            assert "Running" not in text
            assert each.output(cell).locator(".sky-run").count() == 1
            # The tab that ran it saves it.
            assert not each.page.evaluate(DIRTY)
        # Widgets that come and go while a page is opened are errors of Lab's own in its console.
        assert not before.console_errors
    notebook.page.bring_to_front()
    assert len(notebook.output(cell).locator(".jp-OutputArea-child").all()) == 2
    assert not notebook.console_errors


@pytest.mark.extensive
def test_a_tab_goes_on_with_what_was_saved_in_mid_run(notebook, go):
    cell = notebook.add_cell(WAITS)
    notebook.run_cell(cell, wait=False)
    visible(notebook, cell, "first words").wait_for()
    notebook.save()
    with notebook.beside(in_mid_run=True) as other:
        visible(other, cell, "first words").wait_for()
        go.touch()
        visible(other, cell, "2 ranks finished").wait_for()
        visible(other, cell, "[0, 11]").wait_for()
        other.screenshot("tab-of-what-was-saved")
        assert other.output(cell).locator(".sky-run").locator("visible=true").count() == 1
        assert "Running" not in seen(other, cell)
    notebook.page.bring_to_front()
    notebook.wait_idle()
