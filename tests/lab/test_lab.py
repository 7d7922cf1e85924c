"""JupyterLab in Chromium: what people see while a cell runs, and after it."""

from lab.cells import FOUR, SWAPPED

# It goes on when the test says so, so that what is seen is seen while the cell runs. It leaves no
# output: a page that is opened again would look for a widget of a kernel that is gone.
LIVE = """import ipywidgets, pathlib, time
from IPython.display import clear_output
def wait_for(name):
    while not pathlib.Path(name).exists():
        time.sleep(0.01)
shown = ipywidgets.HTML("<p>before</p>")
display(shown)
wait_for("go")
shown.value = "<p>after</p>"
wait_for("end")
clear_output()
"""

# Lab takes arrow keys for its own, but not on what has this attribute itself.
RADIOS = """from IPython.display import HTML
radio = '<input type="radio" name="rank" {} data-lm-suppress-shortcuts="true" id="rank-{}">'
HTML(radio.format("checked", 0) + radio.format("", 1))
"""


def test_four_ranks(notebook):
    four = notebook.add_cell(FOUR)
    notebook.run_cell(four)
    seen = notebook.output_text(four)
    notebook.screenshot("four-ranks")
    assert all(word in seen for word in ("4 ranks", "hello from rank 0", "hello from rank 3"))
    assert not notebook.console_errors


def test_a_widget_changes_while_its_cell_runs(notebook):
    live = notebook.add_cell(LIVE)
    notebook.run_cell(live, wait=False)
    notebook.output(live).get_by_text("before", exact=True).wait_for()
    (notebook.path.parent / "go").touch()
    notebook.output(live).get_by_text("after", exact=True).wait_for()
    assert notebook.running
    (notebook.path.parent / "end").touch()
    notebook.wait_idle()
    assert not notebook.console_errors


def test_a_widget_gives_way_to_a_picture(notebook):
    swapped = notebook.add_cell(SWAPPED)
    notebook.run_cell(swapped)
    notebook.output(swapped).get_by_text("final", exact=True).wait_for()
    assert notebook.output_text(swapped).strip() == "final"
    assert not notebook.console_errors


def test_arrow_keys_switch_radio_buttons(notebook):
    notebook.run_cell(notebook.add_cell(RADIOS))
    notebook.page.locator("#rank-0").click()
    notebook.page.keyboard.press("ArrowRight")
    assert notebook.page.locator("#rank-1").is_checked()
    notebook.page.keyboard.press("ArrowLeft")
    assert notebook.page.locator("#rank-0").is_checked()
    assert not notebook.console_errors
