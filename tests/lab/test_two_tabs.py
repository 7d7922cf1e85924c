"""One notebook in several tabs: each shows what the cell shows, whichever of them ran it, and when it was opened."""

from __future__ import annotations

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
CONNECTED = """() => {
  const kernel = window.jupyterapp?.shell.currentWidget?.sessionContext.session?.kernel;
  return kernel?.connectionStatus === 'connected';
}"""
DIRTY = "jupyterapp.shell.currentWidget.context.model.dirty"


def visible(notebook, cell, text):
    # Nothing is laid out in a tab that is behind another one.
    notebook.page.bring_to_front()
    return notebook.output(cell).get_by_text(text).locator("visible=true").first


def shows_the_end(notebook, cell):
    """It shows the last picture, once, and the value."""
    visible(notebook, cell, "2 ranks finished").wait_for()
    visible(notebook, cell, "[1] 11").wait_for()
    out = notebook.output(cell)
    text = out.inner_text()
    assert "Running" not in text
    assert text.count("last words") == 1
    assert out.locator(".sky-run").locator("visible=true").count() == 1


@pytest.mark.extensive
def test_a_tab_that_did_not_run_the_cell_shows_its_picture_and_value(notebook, go):
    cell = notebook.add_cell(WAITS)
    notebook.save()
    with notebook.beside() as other:
        notebook.page.bring_to_front()
        notebook.run_cell(cell, wait=False)
        visible(notebook, cell, "first words").wait_for()
        visible(other, cell, "first words").wait_for()
        other.screenshot("another-tab-in-mid-run")
        go.touch()
        shows_the_end(notebook, cell)
        notebook.wait_idle()
        shows_the_end(other, cell)
        other.screenshot("another-tab-finished")
        # The tab that ran the cell saves it.
        assert not other.page.evaluate(DIRTY)
        assert not other.console_errors
    notebook.page.bring_to_front()
    picture, value = notebook.output(cell).locator(".jp-OutputArea-child").all()
    assert "finished" in picture.inner_text()
    assert "11" in value.inner_text()


@pytest.mark.extensive
def test_what_a_later_cell_shows_stays_out_of_the_cell_of_a_run_in_the_background(notebook, go):
    cell = notebook.add_cell(WAITS.replace("nodes=2", "nodes=2 detach out=h"))
    later = notebook.add_cell("print('of a later cell')\nh.result()")
    notebook.save()
    with notebook.beside() as other:
        notebook.page.bring_to_front()
        notebook.run_cell(cell, wait=False)
        visible(other, cell, "first words").wait_for()
        notebook.page.bring_to_front()
        notebook.run_cell(later, wait=False)
        visible(notebook, later, "of a later cell").wait_for()
        go.touch()
        visible(other, cell, "2 ranks finished").wait_for()
        notebook.page.bring_to_front()
        notebook.wait_idle()
        notebook.screenshot("own-tab-of-a-run-in-the-background")
        other.page.bring_to_front()
        other.screenshot("another-tab-of-a-run-in-the-background")
        assert "of a later cell" not in other.output_text(cell)
        assert other.output(cell).locator(".sky-run").locator("visible=true").count() == 1
        assert not other.console_errors


@pytest.mark.extensive
@pytest.mark.parametrize("is_saved", [False, True])
def test_a_tab_that_is_opened_in_mid_run_goes_on_with_it(notebook, go, is_saved):
    cell = notebook.add_cell(WAITS)
    notebook.save()
    notebook.run_cell(cell, wait=False)
    visible(notebook, cell, "first words").wait_for()
    if is_saved:
        notebook.save()
    with notebook.beside(in_mid_run=True) as other:
        visible(other, cell, "first words").wait_for()
        # What was saved is there before the kernel is; a value that comes in between is not in this tab.
        other.page.wait_for_function(CONNECTED)
        go.touch()
        shows_the_end(other, cell)
        other.screenshot(f"tab-opened-in-mid-run-saved-{is_saved}")
    notebook.page.bring_to_front()
    notebook.wait_idle()
