"""The picture under a cell, as people see it in JupyterLab: live, finished, and when they come back."""

import re

import pytest
from waiting import until

from lab.cells import FOUR, SWAPPED
from skyward_nb.words.ranks import parse_ranks

WIDTH = re.compile(r'"width: ?(\d+)%')

# Rank 2 is slow; the loop goes on when the test says so.
TRAIN = """%%sky_remote nodes=4
import pathlib, time
import matplotlib.pyplot as plt
import skyward_nb as sky
from tqdm.auto import tqdm

rank = sky.instance_info().rank
go = pathlib.Path("GO")
print("\\x1b[32mhello\\x1b[0m from rank", rank)
for step in tqdm(range(40), desc="epoch"):
    if step == (12 if rank == 2 else 30):
        while not go.exists():
            time.sleep(0.05)
    sky.log(loss=1 / (step + 1) + rank / 100)
    print("step", step)
    time.sleep(0.05)
if rank == 1:
    plt.figure(figsize=(4, 1.5)); plt.plot([1, 3, 2]); plt.show()
rank
"""


@pytest.fixture(scope="module")
def train(loaded):
    pytest.importorskip("matplotlib")
    return loaded.add_cell(TRAIN)


@pytest.fixture
def go(notebook):
    """What lets the loop of TRAIN go on."""
    path = notebook.path.parent / "GO"
    yield path
    path.unlink(missing_ok=True)


def widths(notebook, cell):
    """How far the bars are, in percent."""
    return [int(each) for each in WIDTH.findall(notebook.output_html(cell))]


def lines(locator):
    """The lines of output that are to be seen."""
    return [line for line in locator.inner_text().splitlines() if line.startswith("[")]


def ranks_that_said(text, lines):
    """The ranks before the lines of this text: one line of all, unless they were far apart."""
    said = (line[1:].partition("] ") for line in lines)
    return {rank for who, _, what in said if what == text for rank in parse_ranks("ranks", who, 4)}


def test_bars_curves_tabs_and_figures(notebook, train, go):
    page = notebook.page
    notebook.run_cell(train, wait=False)
    out = notebook.output(train)

    live = out.locator(".sky-live")

    # While it runs: bars move, the slow rank is named, tabs switch by click and by keyboard.
    live.get_by_text("steps behind").first.wait_for()
    live.locator(".sky-pane-3").get_by_text("step 29").wait_for(state="attached")
    live.locator(".sky-pane-2").get_by_text("step 11").wait_for(state="attached")
    live.locator(".sky-pane-all").get_by_text("step 29").wait_for()
    before = [int(each) for each in WIDTH.findall(live.inner_html())]
    assert len(before) == 4
    assert max(before) > min(before)
    pane = live.locator(".sky-pane:visible")
    assert pane.count() == 1
    # Of ranks that are far apart, as on a busy machine, equal lines stand apart, too.
    until(lambda: any("] step 2" in line for line in lines(pane)))
    live.get_by_text("2", exact=True).and_(live.locator("label")).click()
    assert lines(pane)[-1].endswith("step 11")
    page.keyboard.press("ArrowRight")
    assert lines(pane)[-1].endswith("step 29")
    live.locator("img[alt*='loss']").wait_for()
    notebook.screenshot("running")
    go.touch()
    notebook.wait_idle()

    # The end: bars at 100 %, the figure, every line, colours.
    assert widths(notebook, train) == [100]
    html = notebook.output_html(train)
    assert html.count("<img") >= 2
    assert "4 ranks finished" in notebook.output_text(train)
    shown = out.locator(".out")
    assert ranks_that_said("step 39", lines(shown)) == {0, 1, 2, 3}
    radio = out.locator("input[value='1']")
    radio.locator("..").click()
    mine = lines(shown)
    assert any(line.endswith("hello from rank 1") for line in mine)
    assert not any(line.endswith("hello from rank 0") for line in mine)
    page.keyboard.press("ArrowLeft")
    assert out.locator("input[value='0']").is_checked()
    assert any(line.endswith("hello from rank 0") for line in lines(shown))
    page.keyboard.press("ArrowLeft")
    assert out.locator("input[value='all']").is_checked()
    notebook.screenshot("finished")
    assert not notebook.console_errors


def test_dark_theme(notebook, train, go):
    page = notebook.page
    page.evaluate(
        "jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})"
    )
    go.touch()
    notebook.run_cell(train)
    notebook.screenshot("dark")
    assert not notebook.console_errors


def test_what_was_saved_is_seen_when_it_is_opened_again(notebook, train, go):
    four, swapped = notebook.add_cell(FOUR), notebook.add_cell(SWAPPED)
    go.touch()
    for cell in (train, four, swapped):
        notebook.run_cell(cell)
    seen = [notebook.output_text(cell) for cell in (train, four)]
    images = notebook.output_html(train).count("<img")
    assert images >= 2
    notebook.save()
    (output,) = notebook.saved().cells[swapped].outputs
    assert set(output.data) == {"text/html", "text/plain"}
    notebook.reopen()
    assert [notebook.output_text(cell) for cell in (train, four)] == seen
    assert widths(notebook, train) == [100]
    assert notebook.output_html(train).count("<img") == images
    assert notebook.output(four).locator(".sky-run").count() == 1
    notebook.screenshot("reopened")
    final = notebook.output(swapped).locator(".final")
    assert final.evaluate("element => getComputedStyle(element).color") == "rgb(1, 2, 3)"
    # From elsewhere the same words, without the style.
    notebook.reopen(trusted=False)
    assert notebook.output_text(swapped).strip() == "final"
    assert notebook.output(swapped).locator("style").count() == 0
    kept = [each for each in notebook.output_text(train).splitlines() if each.startswith("[")]
    assert ranks_that_said("step 39", kept) == {0, 1, 2, 3}
    notebook.screenshot("untrusted")
    assert not notebook.console_errors
