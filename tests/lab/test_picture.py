"""The picture under a cell, as people see it in JupyterLab: live, finished, and when they come back."""

import re

import pytest
from waiting import until

from skyward_nb.words.ranks import parse_ranks

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
def opened(open_notebook):
    pytest.importorskip("matplotlib")
    return open_notebook(["%load_ext skyward_nb", TRAIN, "%sky down"])


@pytest.fixture
def notebook(opened):
    opened.run_cell(0)
    yield opened
    (opened.path.parent / "GO").unlink(missing_ok=True)


def widths(notebook):
    """How far the bars are, in percent."""
    found = re.findall(r'"width: ?(\d+)%', notebook.output_html(1))
    return [int(each) for each in found]


def lines(locator):
    """The lines of output that are to be seen."""
    return [line for line in locator.inner_text().splitlines() if line.startswith("[")]


def ranks_that_said(text, lines):
    """The ranks before the lines of this text: one line of all, unless they were far apart."""
    said = (line[1:].partition("] ") for line in lines)
    return {rank for who, _, what in said if what == text for rank in parse_ranks("ranks", who, 4)}


def test_bars_curves_tabs_and_figures(notebook):
    page = notebook.page
    notebook.run_cell(1, wait=False)
    out = notebook.output(1)

    # While it runs: bars move, the slow rank is named, tabs switch by click and by keyboard.
    out.get_by_text("steps behind").first.wait_for()
    out.locator(".sky-pane-3").get_by_text("step 29").wait_for(state="attached")
    out.locator(".sky-pane-2").get_by_text("step 11").wait_for(state="attached")
    out.locator(".sky-pane-all").get_by_text("step 29").wait_for()
    before = widths(notebook)
    assert len(before) == 4
    assert max(before) > min(before)
    pane = out.locator(".sky-pane:visible")
    assert pane.count() == 1
    # Of ranks that are far apart, as on a busy machine, equal lines stand apart, too.
    until(lambda: any("] step 2" in line for line in lines(pane)))
    out.get_by_text("2", exact=True).and_(out.locator("label")).click()
    assert lines(pane)[-1].endswith("step 11")
    page.keyboard.press("ArrowRight")
    assert lines(pane)[-1].endswith("step 29")
    out.locator("img[alt*='loss']").wait_for()
    notebook.screenshot("running")
    (notebook.path.parent / "GO").touch()
    notebook.wait_idle()

    # The end: bars at 100 %, the figure, every line, colours.
    assert widths(notebook) == [100]
    html = notebook.output_html(1)
    assert html.count("<img") >= 2
    assert "4 ranks finished" in notebook.output_text(1)
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
    seen = notebook.output_text(1)
    notebook.screenshot("finished")

    # Saved, and opened again: the same.
    notebook.save()
    notebook.reopen()
    assert notebook.output_text(1) == seen
    assert widths(notebook) == [100]
    assert notebook.output_html(1).count("<img") == html.count("<img")
    notebook.screenshot("reopened")
    notebook.reopen(trusted=False)
    kept = [line for line in notebook.output_text(1).splitlines() if line.startswith("[")]
    assert ranks_that_said("step 39", kept) == {0, 1, 2, 3}
    notebook.screenshot("untrusted")
    assert not notebook.console_errors


def test_dark_theme(notebook):
    page = notebook.page
    page.evaluate(
        "jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})"
    )
    notebook.run_cell(1, wait=False)
    (notebook.path.parent / "GO").touch()
    notebook.wait_idle()
    notebook.screenshot("dark")
    assert not notebook.console_errors
