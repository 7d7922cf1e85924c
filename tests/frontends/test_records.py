"""Runs drawn from their records in JupyterLab 4.4 and Notebook 7: live, searched, by rank, from disk, and not trusted."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from lab import audits, pages, pool_cards
from leaks import leaves_nothing

from frontends.front_ends import FRONT_ENDS, opened, screenshot

HOSTILE = (
    '<table id="mine"><tr><td onclick="window.hacked = 1">7 rows</td></tr></table>'
    '<img src="data:image/png;base64,xx" onerror="window.hacked = 1"><script>window.hacked = 1</script>'
)
SHOWS = f"""%%sky_remote nodes=2
import skyward_nb as sky
from IPython.display import HTML, display
if sky.rank() == 1:
    display(HTML('''{HOSTILE}'''))
for step in range(3000):
    print("step", step, "of rank", sky.rank())
    if step % 60 == 0:
        sky.log(loss=1 / (step + 1 + sky.rank()))
"""
WAITS = """%%sky_remote nodes=2
import pathlib, time
print("first words")
while not pathlib.Path("GO").exists():
    time.sleep(0.05)
print("last words")
"""
LIVE, OVER = ".sky-record[data-is='live']", ".sky-record[data-is='over']"
TRUSTED = (
    "index => jupyterapp.shell.currentWidget.content.widgets[index].model.outputs.get(0).trusted"
)

pytestmark = [
    pytest.mark.extensive,
    pytest.mark.parametrize(
        "served",
        [each for each in FRONT_ENDS if each.is_extended],
        indirect=True,
        ids=lambda each: each.environment,
        scope="module",
    ),
]


@pytest.fixture(scope="module")
def runs(browser, served) -> Iterator[pages.NotebookPage]:
    """A notebook with one finished run, in a page with the renderer."""
    with leaves_nothing():
        made = opened(browser, served, "records.ipynb", pages.RENDERER_ON)
        made.run_cell(pages.LOAD)
        made.run_cell(made.add_cell(SHOWS))
        yield made
        made.check_asked_only_us()
        made.context.close()
        served[1].end_kernels()


@pytest.fixture
def record(runs):
    """That run as it is drawn."""
    runs.console_errors.clear()
    return runs.output(pages.DOWN + 1).locator(".sky-record")


def own_errors(runs):
    """What the page reported, but for widgets, which one that was opened in mid-run misses: it says so then or later."""
    return [each for each in runs.console_errors if "widget" not in each and "Comm" not in each]


def rows(record):
    return record.locator(".sky-row").all_text_contents()


def test_a_run_is_live_after_a_reload_and_in_a_second_tab(runs, served):
    go = runs.path.parent / "GO"
    cell = runs.add_cell(WAITS)
    runs.run_cell(cell, wait=False)
    runs.output(cell).locator(LIVE).get_by_text("first words").first.wait_for()
    assert not runs.output(cell).locator(".sky-live").is_visible(), "one picture at a time"
    screenshot(runs, served, "record-live")
    runs.save()
    assert not runs.console_errors
    runs.reload()
    other = runs.in_another_tab()
    for page in (runs, other):
        page.page.bring_to_front()
        page.output(cell).locator(LIVE).get_by_text("first words").first.wait_for()
    go.touch()
    for page in (runs, other):
        page.page.bring_to_front()
        page.output(cell).locator(OVER).get_by_text("last words").first.wait_for()
    other.page.close()
    runs.page.bring_to_front()
    runs.wait_idle()
    # Notebook 7 misses something of its own as it opens.
    assert not [each for each in runs.console_errors if "skyward" in each]


def test_output_is_searched_and_shown_by_rank_and_folded(runs, record):
    search = record.get_by_label("Search the output")
    search.fill("STEP 2999")
    assert sorted(rows(record)) == ["[0] step 2999 of rank 0", "[1] step 2999 of rank 1"]
    assert record.locator("mark").first.inner_text() == "step 2999"
    record.get_by_role("button", name="1", exact=True).click()
    assert rows(record) == ["[1] step 2999 of rank 1"]
    search.fill("")
    assert not [row for row in rows(record) if row.startswith("[0]")]
    record.get_by_role("button", name="all ranks").click()
    assert [row for row in rows(record) if row.startswith("[0]")]
    curve = record.locator(".sky-curve")
    curve.locator("svg").focus()
    curve.locator("svg").press("Home")
    assert curve.locator(".sky-at").inner_text().startswith("step 0: ")
    fold = record.get_by_role("button", name="The run")
    fold.click()
    assert not curve.is_visible()
    assert record.locator(".sky-bar b").inner_text() == "2 ranks finished"
    fold.click()
    assert curve.is_visible()
    assert not own_errors(runs)


def test_the_full_log_is_read_from_its_end_to_its_beginning(runs, record):
    record.get_by_role("button", name="Full log").click()
    log = record.locator(".sky-log .sky-out")
    log.get_by_text(re.compile(r"\[\d\] step 0 of rank")).first.wait_for(state="attached")
    record.get_by_role("button", name="End", exact=True).click()
    log.get_by_text(re.compile("step 2999 of")).first.wait_for(state="attached")
    first = log.get_by_text("[1] step 0 of rank 1", exact=True)
    assert first.count() == 0
    while first.count() == 0:
        log.evaluate("node => { node.scrollTop = 0; }")
        runs.page.wait_for_timeout(20)
    # Each line once, and each rank's in order.
    seen = [row for row in log.locator(".sky-row").all_text_contents() if row.startswith("[1] s")]
    assert seen == [f"[1] step {step} of rank 1" for step in range(3000)]
    record.get_by_role("button", name="Close").click()
    assert not own_errors(runs)


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_nothing_serious_is_in_the_way_of_anybody(runs, record, served, theme):
    pool_cards.open_panel(runs).locator(".sky-pool .sky-title").wait_for()
    audits.dress(runs, theme)
    record.scroll_into_view_if_needed()
    faults = audits.serious_faults(runs, ".sky-record", ".sky-panel")
    screenshot(runs, served, f"record-{theme.lower()}")
    audits.dress(runs, "Light")
    assert not faults
    assert not own_errors(runs)


def test_a_notebook_from_elsewhere_shows_it_whole_and_runs_nothing(runs, served):
    cell = pages.DOWN + 1
    runs.run_cell(pages.DOWN)
    runs.save()
    runs.reopen(trusted=False)
    record = runs.output(cell).locator(".sky-record")
    assert record.locator(".sky-bar b").inner_text() == "2 ranks finished"
    assert not runs.page.evaluate(TRUSTED, cell)
    assert record.locator(".sky-shown td").inner_text() == "7 rows"
    assert "[1] step 2999 of rank 1" in rows(record)
    assert record.locator(".sky-curve path").count()
    assert runs.page.evaluate("window.hacked") is None
    assert not record.locator("[onclick], [onerror], script").count()
    screenshot(runs, served, "record-from-elsewhere")
    assert not [each for each in runs.console_errors if "skyward" in each]
