"""The last known picture, where the widgets are gone: a tab closed, a kernel dead, saved in mid-run."""

import pytest
from waiting import until

WAITS = """%%sky_remote nodes=2
import pathlib, time
import skyward_nb as sky
sky.log(loss=1.0)
print("first words")
while not pathlib.Path("GO").exists():
    time.sleep(0.05)
print("last words")
"""


DEAD = "Error displaying widget"


def seen(notebook, cell):
    """What a person sees under a cell."""
    return notebook.output(cell).inner_text()


@pytest.mark.extensive
def test_a_tab_that_is_closed_and_a_kernel_that_dies_in_mid_run(notebook, go):
    cell = notebook.add_cell(WAITS)
    notebook.run_cell(cell, wait=False)
    out = notebook.output(cell)
    live = out.locator(".sky-live")
    live.get_by_text("first words").first.wait_for()
    kept = out.locator(".sky-run:not(.live)")
    kept.get_by_text("first words").first.wait_for(state="attached")
    assert not kept.is_visible(), "one picture at a time"
    notebook.save()

    # The tab is closed, and opened again while the cell runs: the kernel has the widgets.
    notebook.reload()
    notebook.output(cell).get_by_text("first words").locator("visible=true").first.wait_for()
    notebook.screenshot("tab-opened-in-mid-run")
    assert "widget" not in seen(notebook, cell)
    go.touch()
    until(lambda: "2 ranks finished" in seen(notebook, cell))
    notebook.screenshot("tab-opened-in-mid-run-finished")
    text = seen(notebook, cell)
    assert "last words" in text
    assert "Running" not in text

    # What was saved in mid-run, without its kernel.
    notebook.reopen()
    notebook.output(cell).get_by_text(DEAD).wait_for(state="attached")
    notebook.screenshot("saved-in-mid-run")
    text = seen(notebook, cell)
    assert "first words" in text
    assert DEAD not in text
    assert "Drawn at" in text
    (kept, live) = notebook.saved().cells[cell].outputs
    assert "first words" in kept.data["text/plain"]

    # After the end one picture is there, in its place, with its tabs.
    go.touch()
    for index in (0, cell):
        notebook.run_cell(index)
    out = notebook.output(cell)
    assert out.locator(".sky-run").locator("visible=true").count() == 1
    assert out.locator("input[value='all']").is_checked()
    notebook.screenshot("ended-in-its-own-tab")
    notebook.save()
    (kept,) = notebook.saved().cells[cell].outputs
    assert "last words" in kept.data["text/plain"]
    notebook.reload()
    notebook.wait_idle()
    assert "last words" in seen(notebook, cell)
