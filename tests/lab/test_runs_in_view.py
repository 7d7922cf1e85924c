"""The renderer of the record while a kernel runs cells: tabs, reloads, marks of lines, titles, the menu of a cell."""

from __future__ import annotations

import functools
import itertools
import re

import pytest
from later import Later
from msgspec.structs import replace
from picture import views
from waiting import until

from lab import cell_tools, pages, pool_cards
from skyward_nb.show.canvas import bundle

nbformat = Later("nbformat")

WAITS = """%%sky_remote nodes=2
import pathlib, time
import skyward_nb as sky
print("first words")
while not pathlib.Path("GO").exists():
    time.sleep(0.05)
print("last words")
"""
# A run as a kernel publishes it, of 20 seconds, of which four tenths are done; and its end.
PUBLISHED = """import pathlib, time
record = {record}
shown = display({{"application/vnd.skyward.run+json": record, "text/plain": "run"}}, raw=True, display_id=True)
while not pathlib.Path("GO").exists():
    time.sleep(0.05)
record = record | {{"over": True, "state": "finished", "headline": "4 ranks finished", "seconds": 20.0}}
shown.update({{"application/vnd.skyward.run+json": record, "text/plain": "run"}}, raw=True)
"""
IN_FRONT = "jupyterapp.shell.currentWidget.context.path"
IN_SIGHT = """index => {
  const notebook = jupyterapp.shell.currentWidget.content;
  const [frame, box] = [notebook.node, notebook.widgets[index].node].map(each => each.getBoundingClientRect());
  return box.height > 0 && box.bottom > frame.top && box.top < frame.bottom;
}"""
# Marks are drawn 150 ms after a change.
NUMBERED_LIKE = """async ([index, other]) => {
  const cells = jupyterapp.shell.currentWidget.content.widgets;
  cells[index].model.sharedModel.execution_count = cells[other].model.executionCount;
  await new Promise(resolve => setTimeout(resolve, 1000));
}"""
# What was asked of our half of the server from now on: [path, when it was begun in milliseconds].
LISTEN = "performance.clearResourceTimings(); performance.setResourceTimingBufferSize(10000)"
ASKED = """performance.getEntriesByType('resource')
  .map(each => [new URL(each.name).pathname, each.startTime])
  .filter(([path]) => path.includes('/skyward/'))"""
NOTICES = """() => {
  window.told = [];
  window.Notification = class {
    static permission = 'granted';
    constructor(title, options) { window.told.push([title, options.body]); }
  };
}"""


@pytest.fixture(scope="module")
def runner(browser, lab):
    """A notebook of runs of its own, in a page with the renderer."""
    pages.write_notebook(lab.root / "runs.ipynb")
    with pages.with_renderer(lab, browser, "runs.ipynb") as made:
        made.run_cell(pages.LOAD)
        yield made
        made.run_cell(pages.DOWN)


@pytest.fixture
def gate(runner):
    path = runner.path.parent / "GO"
    yield path
    path.unlink(missing_ok=True)


def pictures(page, cell):
    """Which pictures of a run a person sees below a cell."""
    found = page.output(cell).locator(".sky-record, .sky-live").locator("visible=true")
    return found.evaluate_all("nodes => nodes.map(each => [each.className, each.dataset.is])")


def test_a_run_in_two_tabs_and_after_a_reload(runner, gate):
    cell = runner.add_cell(WAITS)
    runner.run_cell(cell, wait=False)
    live = ".sky-record[data-is='live']"
    runner.output(cell).locator(live).get_by_text("first words").first.wait_for()
    assert not runner.output(cell).locator(".sky-live").is_visible(), "one picture at a time"
    runner.screenshot("record-live")
    runner.save()
    runner.reload()
    runner.output(cell).locator(live).get_by_text("first words").first.wait_for()
    other = runner.in_another_tab()
    other.output(cell).locator(live).get_by_text("first words").first.wait_for()
    gate.touch()
    for each in (runner, other):
        over = each.output(cell).locator(".sky-record[data-is='over']")
        each.page.bring_to_front()
        over.get_by_text("last words").first.wait_for()
        # Where one takes the place of the other, both may be there for a moment.
        seen = functools.partial(pictures, each, cell)
        until(lambda seen=seen: len(seen()) == 1, told=seen)
    other.page.close()
    runner.page.bring_to_front()
    runner.wait_idle()
    # A page that was opened in mid-run misses widgets; what is seen does not.
    ours = [each for each in runner.console_errors if "widget" not in each and "Comm" not in each]
    assert not ours
    runner.console_errors.clear()


@pytest.mark.extensive
def test_the_server_is_asked_once_a_second_for_a_page_that_is_seen_and_not_for_one_that_is_hidden(
    runner, gate
):
    page = runner.page
    pool_cards.open_panel(runner)
    cell = runner.add_cell(WAITS)
    runner.run_cell(cell, wait=False)
    runner.output(cell).locator(".sky-record[data-is='live']").wait_for()
    page.evaluate(LISTEN)
    seen = until(lambda: (asked := page.evaluate(ASKED)) and len(asked) >= 8 and asked)
    runner.set_hidden(True)
    page.wait_for_timeout(1500)  # one may be on its way
    page.evaluate(LISTEN)
    page.wait_for_timeout(2500)  # two polls and more
    assert not page.evaluate(ASKED)
    runner.set_hidden(False)
    until(lambda: page.evaluate(ASKED))
    gate.touch()
    runner.wait_idle()
    paths = {path for path, _ in seen}
    assert len(paths) == 2, f"of the panel and of the run: {paths}"
    for each in paths:
        times = [when for path, when in seen if path == each]
        gaps = [round(after - before) for before, after in itertools.pairwise(times)]
        assert min(gaps) >= 990, f"{each} was asked for after {gaps} ms"
    runner.check_asked_only_us()
    assert not runner.console_errors


@pytest.mark.extensive
def test_a_tab_that_opens_what_was_saved_in_mid_run_has_the_value_too(runner, gate):
    cell = runner.add_cell(f"{WAITS}sky.rank() * 11")
    runner.run_cell(cell, wait=False)
    runner.output(cell).locator(".sky-record[data-is='live']").wait_for()
    runner.save()
    gate.touch()
    runner.wait_idle()
    other = runner.in_another_tab()
    other.output(cell).get_by_text("[1] 11").wait_for()
    assert other.output_text(cell).count("[1] 11") == 1
    other.screenshot("opened-after-the-end")
    # The page that ran it got it of the kernel.
    other.page.close()
    runner.page.bring_to_front()
    assert runner.output_text(cell).count("[1] 11") == 1


def test_a_line_that_failed_is_marked_until_the_next_run(runner):
    cell = cell_tools.add_failed_cell(runner)
    said = runner.output(cell).locator(".sky-record").inner_text()
    assert "ValueError on rank 1 of 2" in said
    assert "odd" not in said, "the error below says it"
    runner.screenshot("failed-line")
    # Another cell may have the same number, since a kernel was restarted.
    other = runner.add_cell("1\n2\n3\n4\n5")
    runner.page.evaluate(NUMBERED_LIKE, [other, cell])
    assert runner.cell(other).locator(".sky-failed-line").count() == 0
    cell_tools.run_without_failure(runner, cell)
    assert not runner.console_errors


@pytest.mark.extensive
def test_a_run_that_nobody_sees_is_in_the_title_and_its_end_is_told_once(runner, gate):
    record = bundle(replace(views.running(), run=""))["application/vnd.skyward.run+json"]
    cell = runner.add_cell(PUBLISHED.format(record=repr(record)))
    page = runner.page
    page.evaluate(NOTICES)
    runner.run_cell(cell, wait=False)
    runner.output(cell).get_by_text("Running on 4 ranks").first.wait_for()
    # Until it was scrolled to, nobody saw it.
    until(lambda: "%" not in page.title(), told=page.title)
    runner.set_hidden(True)
    until(lambda: re.match(r"6\d% · ", page.title()), told=page.title)

    def comes_before_another_title():
        # Lab itself sets one whenever it has written down its layout, also after this.
        if "set by Lab" not in page.title():
            page.evaluate("document.title = 'set by Lab'")
        return re.fullmatch(r"6\d% · set by Lab", page.title())

    until(comes_before_another_title, told=page.title)
    gate.touch()
    runner.wait_idle()
    until(lambda: page.evaluate("window.told"))
    assert page.evaluate("window.told") == [["4 ranks finished", "runs.ipynb · 20 s"]]
    runner.set_hidden(False)
    until(lambda: "%" not in page.title())
    assert not runner.console_errors


@pytest.mark.extensive
def test_a_run_that_was_scrolled_away_is_in_the_titles_and_its_end_leads_back(runner, gate):
    record = bundle(replace(views.running(), run=""))["application/vnd.skyward.run+json"]
    cell = runner.add_cell(PUBLISHED.format(record=repr(record)))
    page = runner.page
    runner.run_cell(cell, wait=False)
    shown = runner.output(cell).get_by_text("Running on 4 ranks").first
    shown.wait_for()
    until(lambda: "%" not in page.title(), told=page.title)
    last = max(runner.add_cell(f"{n}\n" * 20) for n in range(10))
    scroll = "index => { jupyterapp.shell.currentWidget.content.scrollToItem(index); }"
    page.evaluate(scroll, last)
    until(lambda: re.match(r"6\d% · ", page.title()), told=page.title)
    tab = page.locator(".lm-TabBar-tab.lm-mod-current[data-sky-progress]")
    assert re.fullmatch(r"6\d%", tab.get_attribute("data-sky-progress"))
    runner.screenshot("scrolled-away")
    # Its notebook may be behind another document, too.
    (gate.parent / "notes.txt").touch()
    page.evaluate("jupyterapp.commands.execute('docmanager:open', {path: 'notes.txt'})")
    until(lambda: page.evaluate(IN_FRONT) == "notes.txt")
    gate.touch()
    toast = page.locator(".Toastify__toast").filter(has_text="4 ranks finished: runs.ipynb · 20 s")
    toast.wait_for()
    until(lambda: "%" not in page.title(), told=page.title)
    assert not tab.count()
    toast.get_by_role("button", name="Show").click()
    until(lambda: page.evaluate(IN_FRONT) == "runs.ipynb")
    runner.wait_idle()
    runner.output(cell).get_by_text("4 ranks finished").locator("visible=true").first.wait_for()
    until(lambda: page.evaluate(IN_SIGHT, cell))
    assert not runner.console_errors


@pytest.mark.extensive
def test_the_menu_of_a_cell_names_pools_and_ranks(runner):
    cell = runner.add_cell("x = 1")
    cell_tools.activate(runner, cell)

    def choose(label):
        cell_tools.open_menu(runner, cell).get_by_text(label).click()

    choose("Rank 0 alone")
    until(lambda: cell_tools.source(runner) == "%%sky_remote ranks=head\nx = 1")
    choose("All ranks")
    until(lambda: cell_tools.source(runner) == "%%sky_remote\nx = 1")
    choose("Rank 1 alone")
    until(lambda: cell_tools.source(runner) == "%%sky_remote ranks=1\nx = 1")
    assert not runner.console_errors


WAITS_AND_FAILS = """import pathlib, time
while not pathlib.Path("GO").exists():
    time.sleep(0.05)
1 / 0
"""


@pytest.mark.extensive
def test_values_on_ranks_are_listed_and_pulled(runner, gate):
    runner.run_cell(runner.add_cell("%%sky_remote nodes=2\nanswer = 42;"))
    card = pool_cards.open_panel(runner).locator(".sky-pool")
    # The kernel is busy, and drops what waits for it when its cell fails.
    runner.run_cell(runner.add_cell(WAITS_AND_FAILS), wait=False)
    card.get_by_role("button", name="Values").click()
    assert not card.get_by_role("button", name="Restart").is_enabled()
    card.get_by_role("button", name="Output").click()
    card.get_by_text(re.compile("^run default")).wait_for()
    gate.touch()
    row = card.locator(".sky-values tbody tr").filter(has_text="answer")
    assert row.locator("td").nth(1).inner_text() == "0-1"
    row.get_by_role("button", name="pull").click()
    card.get_by_text(re.compile("answer: one value per rank")).wait_for()
    cell = runner.add_cell("answer")
    runner.run_cell(cell)
    assert "42" in runner.output_text(cell)
    assert not runner.console_errors
