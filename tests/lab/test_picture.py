"""The picture under a cell, as people see it in JupyterLab: live, finished, and when they come back."""

import re

import pytest
from msgspec.structs import replace
from picture import views
from waiting import until

from lab.cells import FOUR, SWAPPED
from skyward_nb.picture import style_sheet
from skyward_nb.picture.page import as_html
from skyward_nb.protocol.events import Display, Output, Progress
from skyward_nb.view.folding import fold
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

SAMPLE = """() => {
  const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  window.statuses = [];
  window.sampling = setInterval(() => window.statuses.push(kernel.status), 50);
}"""

BUSY = """() => window.statuses.length > 60 && window.statuses.slice(-20).every(each => each === 'busy')"""


@pytest.fixture(scope="module")
def train(loaded):
    pytest.importorskip("matplotlib")
    return loaded.add_cell(TRAIN)


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
    page.evaluate(SAMPLE)
    notebook.run_cell(train, wait=False)
    out = notebook.output(train)

    live = out.locator(".sky-live")

    # While it runs: bars move, the slow rank is named, tabs switch by click and by keyboard.
    live.get_by_text("steps behind").first.wait_for()
    live.locator(".sky-pane-3").get_by_text("step 29").wait_for(state="attached")
    live.locator(".sky-pane-2").get_by_text("step 11").wait_for(state="attached")
    live.locator(".sky-pane-all").get_by_text("step 29").wait_for()
    # A rank that has just begun has no bar yet.
    until(lambda: len(WIDTH.findall(live.inner_html())) == 4)
    before = [int(each) for each in WIDTH.findall(live.inner_html())]
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
    # Lab takes the end of a subshell's request for the cell's; the kernel says then that it is busy.
    page.wait_for_function(BUSY, polling=50)
    notebook.screenshot("running")
    go.touch()
    notebook.wait_idle()
    page.evaluate("clearInterval(window.sampling)")

    # The end: bars at 100 %, the figure, every line, colours.
    assert widths(notebook, train) == [100] * 4
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


@pytest.mark.extensive
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
    # Lab lays out what is out of sight only once it is scrolled to.
    until(lambda: [notebook.output_text(cell) for cell in (train, four)] == seen)
    assert widths(notebook, train) == [100] * 4
    assert notebook.output_html(train).count("<img") == images
    assert notebook.output(four).locator(".sky-run").count() == 1
    notebook.screenshot("reopened")
    final = notebook.output(swapped).locator(".final")
    assert final.evaluate("element => getComputedStyle(element).color") == "rgb(1, 2, 3)"
    # From elsewhere the same words, without the style.
    notebook.reopen(trusted=False)
    notebook.output(swapped).get_by_text("final").wait_for()
    assert notebook.output_text(swapped).strip() == "final"
    assert notebook.output(swapped).locator("style").count() == 0
    kept = [each for each in notebook.output_text(train).splitlines() if each.startswith("[")]
    assert ranks_that_said("step 39", kept) == {0, 1, 2, 3}
    notebook.screenshot("untrusted")
    assert not notebook.console_errors


# What VS Code puts around widgets, and what it says of it, in a dark theme.
VSCODE = """<style>.cell-output-ipywidget-background {background: white !important; padding: 4px}
body {background: #1f1f1f; color: black; --vscode-editor-foreground: #cccccc}
.widget-html-content, .widget-box {color: black}</style>
<div class="cell-output-ipywidget-background"><div class="widget-box sky-live"><div class="widget-html">
<div class="widget-html-content">STYLE</div></div></div></div>"""


def test_the_live_picture_is_no_white_slab_in_vs_code(browser):
    page = browser.new_page()
    page.set_content(VSCODE.replace("STYLE", style_sheet.STYLE))
    style = "selector => {const s = getComputedStyle(document.querySelector(selector)); return %s}"
    around = page.evaluate(style % "s.backgroundColor", ".cell-output-ipywidget-background")
    assert around == "rgba(0, 0, 0, 0)"
    assert page.evaluate(style % "s.color", ".widget-html-content") == "rgb(204, 204, 204)"
    # Its variables of JupyterLab are those of a light theme.
    done = (
        '<body class="vscode-dark" style="--jp-border-color2: #e0e0e0">STYLE<div class="sky-run">'
    )
    page.set_content(done.replace("STYLE", style_sheet.STYLE))
    assert page.evaluate(style % "s.borderColor", ".sky-run") == "rgba(128, 128, 128, 0.35)"
    page.close()


BOXES = """() => {
  const box = element => element.getBoundingClientRect();
  const middle = element => box(element).top + box(element).height / 2;
  const first = document.querySelector('.sky-run'), out = first.querySelector('.out');
  const words = out.querySelector('pre:last-of-type');
  return {
    loops: [...document.querySelectorAll('.lp')].map(each => [...each.children].map(middle)),
    dot: box(first.querySelector('.ti > span')).top,
    title: box(first.querySelector('.ti > div')).top,
    last: box(words).bottom,
    bottom: box(out).bottom,
    figures: [...document.querySelectorAll('[style*=grid] > .fig')].map(each => [box(each).left, box(each).top]),
  };
}"""


def test_bars_output_and_figures_lie_as_they_should(browser):
    view = fold(
        views.finished(),
        *(Progress(0, bar, 3, 3, f"loop {bar}", over=True) for bar in range(3, 8)),
        *(Output(0, "stdout", f"line {number}\n") for number in range(200)),
    )
    view = replace(view, headline="a title of many words " * 20)
    figures = (Display(rank, {"text/html": f"<p>{rank}</p>"}) for rank in (3, 0, 2, 1))
    page = browser.new_page(viewport={"width": 1000, "height": 900})
    page.set_content(as_html(view) + as_html(fold(views.running(), *figures)))
    boxes = page.evaluate(BOXES)
    # Each bar is in the line of its words, the dot in the first line of the title.
    assert len(boxes["loops"]) > 8
    assert all(abs(bar - words) < 3 for bar, words in boxes["loops"])
    assert boxes["dot"] < boxes["title"] + 20
    # Long output begins at its end, and figures stand two by two.
    assert boxes["last"] <= boxes["bottom"]
    assert boxes["figures"][0][1] == boxes["figures"][1][1] < boxes["figures"][2][1]
    assert boxes["figures"][0][0] == boxes["figures"][2][0] < boxes["figures"][1][0]
    page.close()
