"""The renderer of the record in JupyterLab: what was kept, read from elsewhere, searched, and what ended unseen."""

from __future__ import annotations

import itertools
import re

import msgspec
import pytest
from later import Later
from msgspec.structs import replace
from picture import views
from tiers import few
from waiting import until

from lab import audits, pages
from skyward_nb.lab.run_pages import LogPage, RunNow
from skyward_nb.logs.log_reader import LogLine
from skyward_nb.picture.record import MIME
from skyward_nb.protocol.events import Display, Output, Progress
from skyward_nb.show.canvas import bundle
from skyward_nb.show.run_progress import picture_of
from skyward_nb.view.folding import fold
from skyward_nb.view.run_view import NoteTable

nbformat = Later("nbformat")

RUN = re.compile(r"/skyward/runs/default-ab12cd/7(\?|$)")
LOG = re.compile(r"/skyward/runs/default-ab12cd/7/log\?")
HOSTILE = (
    '<table id="mine"><tr><td onclick="window.hacked = 1">7 rows</td></tr></table>'
    '<img src="data:image/png;base64,xx" onerror="window.hacked = 1"><script>window.hacked = 1</script>'
)
# Scrolls up by less than what is in sight, and says which line is the first of it then.
UP = """async () => {
  const node = document.querySelector('.sky-log .sky-out');
  node.scrollTop -= 100;
  await new Promise(requestAnimationFrame);
  await new Promise(done => setTimeout(done, 0));
  const {top} = node.getBoundingClientRect();
  const first = [...node.querySelectorAll('.sky-row')].find(row => row.getBoundingClientRect().bottom > top);
  return Number(first.textContent.match(/log line (\\d+)/)[1]);
}"""


def output_of(data):
    return nbformat.v4.new_output("display_data", data=data)


def crowded():
    """A run that failed: ranks showed figures out of order, and had many loops; notes of it make a table."""
    shown = (
        Display(rank, {"text/html": f"<p>figure {turn} of {rank}</p>"})
        for rank, turn in ((2, 1), (0, 1), (1, 1), (0, 2), (2, 2))
    )
    # What ranks print after their figures is not between them.
    shown = [each for one in shown for each in (one, Output(one.rank, "stdout", "drawn\n"))]
    loops = (
        Progress(rank, 10 + n, 5, 5, f"loop {n}", 1.0, over=True, keeping=True)
        for rank in range(4)
        for n in range(20)
    )
    table = NoteTable("communication", ("rank", "time"), (("0", "3 ms"),), ("a remark",), ("r 0",))
    view = views.finished()
    for each in shown:
        view = fold(view, each)
    return replace(
        fold(view, *loops),
        state="failed",
        headline="ValueError on rank 2: odd",
        short_headline="ValueError on rank 2",
        error_notes=("line 4: raise",),
        tables=(table,),
    )


def changed(*, version=None, html=None):
    """A run that printed much, as another program or another version has left it."""
    lines = [
        Output(rank, "stdout", f"{n} {'x' * 90} {rank}\n") for n in range(200) for rank in (0, 1)
    ]
    data = bundle(fold(replace(views.finished(), run="default-ab12cd/7"), *lines))
    if version is not None:
        data[MIME]["version"] = version
    return data if html is None else data | {"text/html": html}


def loading(percent):
    """A long run whose only line that changes stands in the HTML alone."""
    lines = [Output(0, "stdout", f"{n} {'x' * 90}\n") for n in range(300)]
    return bundle(fold(views.running(), *lines, Output(0, "stdout", f"loading {percent} %\n")))


@pytest.fixture(scope="module")
def reader(browser, lab):
    """A notebook from elsewhere, of runs that were kept, in a page with the renderer."""
    view = fold(views.finished(), Display(3, {"text/html": HOSTILE, "text/plain": "7 rows"}))
    lines = [Output(0, "stdout", f"line {n} " + "x" * 50 + "\n") for n in range(20_000)]
    lines.append(Output(1, "stderr", "\x1b[31mline 19998½ <b>\x1b[0m\n  line &amp; more\n"))
    many = fold(view, *lines)
    going = replace(views.running(), run="default-ab12cd/7")
    pages.write_notebook(lab.root / "kept.ipynb")
    notebook = nbformat.read(lab.root / "kept.ipynb", as_version=4)
    foreign = (changed(html=""), changed(version=3))
    for data in (bundle(view), bundle(many), bundle(going), bundle(crowded()), *foreign):
        notebook.cells.append(nbformat.v4.new_code_cell("run", outputs=[output_of(data)]))
    nbformat.write(notebook, lab.root / "kept.ipynb")
    with pages.with_renderer(lab, browser, "kept.ipynb") as made:
        yield made


@pytest.fixture
def kept(reader):
    """The first run, as it is shown; the console has said nothing."""
    reader.console_errors.clear()
    return reader.output(2).locator(".sky-record")


def rows(record):
    # What was just put there is not laid out yet, and has no inner text until it is.
    return record.locator(".sky-row").all_text_contents()


def test_a_notebook_from_elsewhere_shows_runs_whole_and_runs_nothing(reader, kept):
    assert kept.locator(".sky-bar b").inner_text() == "4 ranks finished"
    assert "7 rows" in kept.locator(".sky-shown").last.inner_text()
    assert kept.locator(".sky-shown img[alt='figure of rank 1']").count() == 1
    assert reader.page.evaluate("window.hacked") is None
    assert not kept.locator("[onclick], [onerror], script").count()
    reader.screenshot("record-light")
    audits.dress(reader, "Dark")
    reader.screenshot("record-dark")
    audits.dress(reader, "Light")
    assert not reader.console_errors


def test_output_is_searched_and_shown_by_rank(reader, kept):
    everything = rows(kept)
    search = kept.get_by_label("Search the output")
    search.fill("CHECKPOINT")
    assert rows(kept) == ["[0] saved checkpoint <6>"]
    assert kept.locator("mark").inner_text() == "checkpoint"
    kept.get_by_text(re.compile(r"^1 of \d+ lines$")).wait_for()
    search.fill("")
    kept.get_by_role("button", name="2", exact=True).click()
    assert rows(kept) == ["[0-3] epoch 6 done", "[2] UserWarning: slow"]
    assert kept.locator(".sky-table tbody tr").count() == 1
    kept.get_by_role("button", name="3", exact=True).click()
    assert kept.locator(".sky-table tbody tr").count() == 2
    kept.get_by_role("button", name="all ranks").click()
    assert rows(kept) == everything
    assert not reader.console_errors


def test_curves_say_what_ranks_have_at_the_pointer_and_by_keys(reader, kept):
    curve = kept.locator(".sky-curve").first
    picture = curve.locator("svg")
    picture.scroll_into_view_if_needed()
    size = picture.bounding_box()
    picture.hover(position={"x": size["width"] * 56 / 440 + 1, "y": 40})
    assert re.match(
        r"step 0: .* ●0: 1 ●1: 0.5 ●2: 0.3333 ●3: 0.25", curve.locator(".sky-at").inner_text()
    )
    picture.focus()
    picture.press("End")
    picture.press("ArrowLeft")
    assert curve.locator(".sky-at").inner_text().startswith("step 48: ")
    picture.press("Escape")
    scale = curve.get_by_role("button", name="log")
    before = scale.get_attribute("aria-pressed")
    scale.click()
    assert {before, scale.get_attribute("aria-pressed")} == {"true", "false"}
    kept.get_by_role("button", name="The run").click()
    assert not curve.is_visible()
    kept.get_by_role("button", name="The run").click()
    assert curve.is_visible()
    assert not reader.console_errors


def serve_log(reader, lines, longest_page=10**6):
    """Answer as the server does for a log of these lines, of which a page has at most so many."""

    def answer(route):
        asked = {
            name: int(value)
            for name, value in re.findall(r"(from|before|count)=(-?\d+)", route.request.url)
        }
        count = min(asked["count"], longest_page)
        end = min(asked["from"] + count, len(lines))
        if asked["from"] < 0:
            end = asked.get("before", len(lines))
        begin = max(0, end - count) if asked["from"] < 0 else asked["from"]
        found = tuple(LogLine(1, "stdout", line) for line in lines[begin:end])
        body = msgspec.json.encode(LogPage(found, end if end < len(lines) else None, begin))
        route.fulfill(body=body, content_type="application/json")

    reader.page.unroute(LOG)
    reader.page.route(LOG, answer)


def test_the_full_log_is_read_by_pages(reader, kept):
    serve_log(reader, [f"log line {n}" for n in range(4100)])
    kept.get_by_role("button", name="Full log").click()
    log = kept.locator(".sky-log .sky-out")
    log.get_by_text("[1] log line 0", exact=True).wait_for()
    while log.get_by_text("log line 2001").count() == 0:
        log.evaluate("node => { node.scrollTop = node.scrollHeight; }")
        reader.page.wait_for_timeout(20)
    # From the end up, with each line once.
    kept.get_by_role("button", name="End", exact=True).click()
    log.get_by_text("log line 4099").wait_for(state="attached")
    while log.get_by_text("[1] log line 0", exact=True).count() == 0:
        log.evaluate("node => { node.scrollTop = 0; }")
        reader.page.wait_for_timeout(20)
    assert rows(log) == [f"[1] log line {n}" for n in range(4100)]
    with reader.page.expect_request(re.compile(r"/log\?.*search=x\+%26\+y")):
        kept.get_by_label("Search the output").fill("x & y")
    kept.get_by_label("Search the output").fill("")
    kept.get_by_role("button", name="Close").click()
    assert "[0] saved checkpoint <6>" in rows(kept)
    assert not reader.console_errors


@pytest.mark.extensive
def test_a_log_of_long_lines_stays_where_it_is_scrolled(reader, kept):
    """A page of such lines has fewer than are asked for."""
    serve_log(reader, [f"log line {n} " + "x" * 2500 for n in range(90)], longest_page=36)
    kept.get_by_role("button", name="Full log").click()
    log = kept.locator(".sky-log .sky-out")
    kept.get_by_role("button", name="End", exact=True).click()
    log.get_by_text("log line 89 ").wait_for(state="attached")
    seen = []
    while not seen or seen[-1] > 0:
        seen.append(reader.page.evaluate(UP))
    assert seen[0] > 80
    # Each step goes up by less than what is in sight.
    steps = [later - sooner for sooner, later in itertools.pairwise(seen)]
    assert max(steps) <= 0, steps
    assert min(steps) > -8, steps
    kept.get_by_role("button", name="Close").click()
    assert not reader.console_errors


def test_much_output_scrolls(reader):
    record = reader.output(3).locator(".sky-record")
    record.get_by_text(re.compile(r"^… [\d,]+ lines not shown")).wait_for(state="attached")
    output = record.locator(".sky-out")
    # The newest lines are in sight, from which on the way up is counted.
    assert output.evaluate("node => { node.scrollTop = -400; return node.scrollTop; }") == -400


def test_lines_that_stand_in_the_html_alone_are_searched_and_shown_like_others(reader):
    record = reader.output(3).locator(".sky-record")
    record.get_by_label("Search the output").fill("line 1999")
    last = [f"[0] line {n} " + "x" * 50 for n in range(19_990, 20_000)]
    assert rows(record)[1:] == [*last, "[1] line 19998½ <b>"]
    record.get_by_label("Search the output").fill("line &")
    assert rows(record)[1:] == ["[1]   line &amp; more"]
    record.get_by_label("Search the output").fill("")
    assert not reader.console_errors


def test_lines_whose_html_is_gone_are_missed_aloud(reader):
    record = reader.output(6).locator(".sky-record")
    missing = [row for row in rows(record) if "not shown" in row]
    # Those with colours stand in the record.
    assert "[0] saved checkpoint <6>" in rows(record)
    assert sum(int(row.split()[1]) for row in missing) == 4 + 1 + 400
    assert "the HTML of this output, which had them, was removed or changed" in missing[-1]
    assert "%sky logs run=default-ab12cd/7 prints them" in missing[-1]
    assert not reader.console_errors


def test_a_record_of_a_later_version_is_drawn_as_its_text(reader):
    record = reader.output(7).locator(".sky-record")
    text = record.locator("pre.sky-plain").inner_text()
    assert text.startswith("4 ranks finished") and f"199 {'x' * 90} 1\n" in text
    assert "reload the page" in text
    assert not record.locator(".sky-bar").is_visible()
    assert not reader.console_errors


def test_what_many_ranks_show_is_in_order_and_said_once(reader):
    record = reader.output(5).locator(".sky-record")
    record.get_by_text("ValueError on rank 2", exact=True).wait_for()
    record.get_by_role("button", name="The run").scroll_into_view_if_needed()
    record.get_by_text("figure 1 of 0").scroll_into_view_if_needed()
    assert "line 4: raise" not in record.inner_text()
    # The first of each rank, which is an image of rank 1, then its second; the others show theirs after a line.
    grids = record.locator(".sky-out .sky-grid").all()
    assert [each.locator("> * > b").all_inner_texts() for each in grids] == [
        ["[0]", "[1]", "[2]", "[1]"],
        ["[0]", "[2]"],
    ]
    assert record.locator(".sky-grid p").all_inner_texts() == [
        f"figure {turn} of {rank}" for turn, rank in ((1, 0), (1, 2), (1, 1), (2, 0), (2, 2))
    ]
    drawn = [row for row in rows(record) if "drawn" in row]
    assert drawn == ["[0-2] drawn", "[0,2] drawn"]
    boxes = [each.bounding_box() for each in grids[0].locator("> *").all()]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] < boxes[1]["x"]
    words = record.locator(".sky-table tbody tr").first.inner_text()
    assert re.search(r"^1[89] loops done", words, re.MULTILINE), words
    assert "loop 19 5/5" in words
    assert "loop 1 " not in words
    assert "memory at most" in record.locator(".sky-table").first.inner_text()
    assert record.get_by_role("region", name="communication").locator("td").all_inner_texts() == [
        "0",
        "3 ms",
    ]
    assert record.get_by_text("a remark").is_visible()
    reader.screenshot("record-crowded")
    assert not reader.console_errors


@pytest.mark.parametrize(("theme", "width"), few(1, audits.LOOKS))
def test_nothing_serious_is_in_the_way_of_anybody(reader, kept, theme, width):
    audits.axe_core()
    failed = reader.output(5).locator(".sky-record")
    audits.dress(reader, theme)
    reader.page.set_viewport_size({"width": width, "height": 900})
    faults = []
    for record, name in ((kept, "record"), (failed, "record-failed")):
        record.scroll_into_view_if_needed()
        record.get_by_label("Search the output").fill("e")
        record.get_by_role("button", name="2", exact=True).click()
        faults += audits.serious_faults(reader, ".sky-record")
        reader.screenshot(f"{name}-{theme.lower()}-{width}")
        record.get_by_label("Search the output").fill("")
        record.get_by_role("button", name="all ranks").click()
    reader.page.set_viewport_size({"width": 1200, "height": 900})
    audits.dress(reader, "Light")
    assert not faults
    assert not reader.console_errors


def test_a_run_that_goes_on_is_asked_for_once_at_a_time_and_keeps_what_is_looked_at(reader):
    held = []
    reader.page.route(RUN, lambda route: held.append(route))
    record = reader.output(4).locator(".sky-record")
    record.scroll_into_view_if_needed()

    def answer(state):
        until(lambda: reader.page.evaluate("1") and held)
        held.pop().fulfill(body=msgspec.json.encode(state), content_type="application/json")

    for _ in range(4):
        reader.set_hidden(False)
        until(lambda: reader.page.evaluate("1") and held)
        reader.page.wait_for_timeout(20)
    assert len(held) == 1, "it waits for the answer"
    answer(RunNow("live", picture_of(views.running(40))))
    record.get_by_text("Running on 40 ranks").wait_for()
    table = record.locator(".sky-table")
    table.evaluate("node => { node.scrollTop = 200; node.focus(); }")
    answer(RunNow("live", picture_of(replace(views.running(40), about="somewhat later"))))
    record.get_by_text("somewhat later").wait_for()
    assert table.evaluate("node => [node.scrollTop, node === document.activeElement]") == [
        200,
        True,
    ]
    answer(RunNow("gone"))
    reader.page.unroute(RUN)
    assert not reader.console_errors


@pytest.mark.extensive
def test_a_run_is_asked_for_again_when_its_notebook_is_shown_while_widgets_stand_in_its_place(
    reader,
):
    asked = []

    def answer(route):
        asked.append(route.request.url)
        body = msgspec.json.encode(RunNow("live", picture_of(views.running(5))))
        route.fulfill(body=body, content_type="application/json")

    reader.page.route(RUN, answer)
    record = reader.output(4).locator(".sky-record")
    record.get_by_text("Running on 5 ranks").wait_for()
    record.evaluate("node => { node.style.display = 'none'; }")
    reader.page.evaluate("jupyterapp.shell.currentWidget.hide()")
    reader.page.wait_for_timeout(1500)  # one may be on its way
    asked.clear()
    reader.page.wait_for_timeout(1500)
    assert not asked
    reader.page.evaluate("jupyterapp.shell.currentWidget.show()")
    until(lambda: reader.page.evaluate("1") and asked)
    record.evaluate("node => { node.style.display = ''; }")
    reader.page.unroute(RUN)
    assert not reader.console_errors


def test_a_run_that_ended_while_nobody_looked_is_seen_and_saved_as_it_ended(reader):
    states = [RunNow("begun"), RunNow("live", picture_of(views.running(6)))]

    def answer(route):
        state = states.pop(0) if len(states) > 1 else states[0]
        route.fulfill(body=msgspec.json.encode(state), content_type="application/json")

    reader.page.route(RUN, answer)
    record = reader.output(4).locator(".sky-record")
    reader.set_hidden(False)  # it asks at once, however long ago it was told nothing
    record.get_by_text("Running on 6 ranks").wait_for()
    assert record.get_attribute("data-is") == "live"
    # What changes in the HTML alone is drawn, too.
    for percent in (10, 90):
        states[:] = [RunNow("live", loading(percent))]
        record.get_by_text(f"loading {percent} %").wait_for(state="attached")
    states[:] = [RunNow("over", bundle(replace(views.finished(), run="default-ab12cd/7")))]
    record.get_by_text("4 ranks finished").wait_for()
    reader.page.unroute(RUN)
    reader.save()
    (output,) = reader.saved().cells[4].outputs
    assert output.data["application/vnd.skyward.run+json"]["over"]
    assert not reader.console_errors
