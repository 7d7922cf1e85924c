"""JupyterLab in Chromium: what people see while a cell runs, after it, and when they come back."""

FOUR = """%%sky_remote nodes=4
import skyward_nb as sky
print("hello from rank", sky.instance_info().rank)
"""

# It goes on when the test says so, so that what is seen is seen while the cell runs.
LIVE = """import ipywidgets, pathlib, time
def wait_for(name):
    while not pathlib.Path(name).exists():
        time.sleep(0.01)
shown = ipywidgets.HTML("<p>before</p>")
display(shown)
wait_for("go")
shown.value = "<p>after</p>"
wait_for("end")
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


def test_four_ranks(open_notebook):
    notebook = open_notebook(["%load_ext skyward_nb", FOUR])
    notebook.run_cell(0)
    notebook.run_cell(1)
    seen = notebook.output_text(1)
    notebook.screenshot("four-ranks")
    assert all(word in seen for word in ("4 ranks", "hello from rank 0", "hello from rank 3"))

    notebook.save()
    notebook.reopen()
    assert notebook.output_text(1) == seen
    assert notebook.output(1).locator("[data-mime-type='text/html']").count() == 1
    notebook.screenshot("four-ranks-reopened")
    assert not notebook.console_errors


def test_a_widget_changes_while_its_cell_runs(open_notebook):
    notebook = open_notebook([LIVE])
    notebook.run_cell(0, wait=False)
    notebook.page.get_by_text("before", exact=True).wait_for()
    (notebook.path.parent / "go").touch()
    notebook.page.get_by_text("after", exact=True).wait_for()
    assert notebook.running
    (notebook.path.parent / "end").touch()
    notebook.wait_idle()
    assert not notebook.console_errors


def test_a_widget_gives_way_to_a_picture(open_notebook):
    notebook = open_notebook([SWAPPED])
    notebook.run_cell(0)
    notebook.page.get_by_text("final", exact=True).wait_for()
    assert notebook.output_text(0).strip() == "final"

    notebook.save()
    (output,) = notebook.saved().cells[0].outputs
    assert set(output.data) == {"text/html", "text/plain"}
    notebook.reopen()
    final = notebook.output(0).locator(".final")
    assert final.evaluate("element => getComputedStyle(element).color") == "rgb(1, 2, 3)"
    # From elsewhere the same words, without the style.
    notebook.reopen(trusted=False)
    assert notebook.output_text(0).strip() == "final"
    assert notebook.output(0).locator("style").count() == 0
    assert not notebook.console_errors


def test_arrow_keys_switch_radio_buttons(open_notebook):
    notebook = open_notebook([RADIOS])
    notebook.run_cell(0)
    notebook.page.locator("#rank-0").click()
    notebook.page.keyboard.press("ArrowRight")
    assert notebook.page.locator("#rank-1").is_checked()
    notebook.page.keyboard.press("ArrowLeft")
    assert notebook.page.locator("#rank-0").is_checked()
    assert not notebook.console_errors
