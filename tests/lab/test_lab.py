"""JupyterLab in Chromium: what people see while a cell runs, after it, and when they come back."""

import pytest

FOUR = """%%sky_remote nodes=4
import skyward_nb as sky
print("hello from rank", sky.instance_info().rank)
"""

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

# A live widget with a final picture in its place: first the picture, and then the widgets close.
# A view whose model is gone before it is replaced is an error in Lab.
SWAPPED = """import ipywidgets
live = ipywidgets.HTML("<p>live</p>")
box = ipywidgets.Tab([ipywidgets.VBox([live])], titles=["all"])
bundle = {**box._repr_mimebundle_(), "text/html": "<p>not live</p>", "text/plain": "plain"}
handle = display(bundle, raw=True, display_id=True)
for turn in range(20):
    live.value = f"<p>live {turn}</p>"
final = "<style>.final {color: rgb(1, 2, 3)}</style><p class='final'>final</p>"
handle.update({"text/html": final, "text/plain": "final"}, raw=True)
for widget in (live, *box.children, box):
    widget.close()
"""

# Lab takes arrow keys for its own, but not on what has this attribute itself.
RADIOS = """from IPython.display import HTML
radio = '<input type="radio" name="rank" {} data-lm-suppress-shortcuts="true" id="rank-{}">'
HTML(radio.format("checked", 0) + radio.format("", 1))
"""


@pytest.fixture(scope="module")
def notebook(open_notebook):
    notebook = open_notebook(["%load_ext skyward_nb", FOUR, LIVE, SWAPPED, RADIOS])
    notebook.run_cell(0)
    return notebook


def test_four_ranks(notebook):
    notebook.run_cell(1)
    seen = notebook.output_text(1)
    notebook.screenshot("four-ranks")
    assert all(word in seen for word in ("4 ranks", "hello from rank 0", "hello from rank 3"))
    assert not notebook.console_errors


def test_a_widget_changes_while_its_cell_runs(notebook):
    notebook.run_cell(2, wait=False)
    notebook.output(2).get_by_text("before", exact=True).wait_for()
    (notebook.path.parent / "go").touch()
    notebook.output(2).get_by_text("after", exact=True).wait_for()
    assert notebook.running
    (notebook.path.parent / "end").touch()
    notebook.wait_idle()
    assert not notebook.console_errors


def test_a_widget_gives_way_to_a_picture(notebook):
    notebook.run_cell(3)
    notebook.output(3).get_by_text("final", exact=True).wait_for()
    assert notebook.output_text(3).strip() == "final"
    assert not notebook.console_errors


def test_arrow_keys_switch_radio_buttons(notebook):
    notebook.run_cell(4)
    notebook.page.locator("#rank-0").click()
    notebook.page.keyboard.press("ArrowRight")
    assert notebook.page.locator("#rank-1").is_checked()
    notebook.page.keyboard.press("ArrowLeft")
    assert notebook.page.locator("#rank-0").is_checked()
    assert not notebook.console_errors


def test_what_was_saved_is_seen_when_it_is_opened_again(notebook):
    notebook.run_cell(1)
    notebook.run_cell(3)
    seen = notebook.output_text(1)
    notebook.save()
    (output,) = notebook.saved().cells[3].outputs
    assert set(output.data) == {"text/html", "text/plain"}
    notebook.reopen()
    assert notebook.output_text(1) == seen
    assert notebook.output(1).locator("[data-mime-type='text/html']").count() == 1
    notebook.screenshot("four-ranks-reopened")
    final = notebook.output(3).locator(".final")
    assert final.evaluate("element => getComputedStyle(element).color") == "rgb(1, 2, 3)"
    # From elsewhere the same words, without the style.
    notebook.reopen(trusted=False)
    assert notebook.output_text(3).strip() == "final"
    assert notebook.output(3).locator("style").count() == 0
    assert not notebook.console_errors
