"""The picture as HTML: well formed, escaped, whole without script or style."""

import re
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace
from picture import views

from skyward_nb.picture import page, rank_table, record
from skyward_nb.picture.text import as_text
from skyward_nb.protocol.events import Display, Metric, Output, Progress, RankDone, RankLost
from skyward_nb.protocol.message_parts import Failure
from skyward_nb.view.folding import fold
from skyward_nb.view.run_view import NoteTable, RankView, RunView

FAILURE = Failure(type_name="ValueError", message="bad", value=None, at=None, traceback=())
VOID = {"img", "br", "input", "meta", "hr"}


class Tags(HTMLParser):
    """Notes every tag that is opened and not closed, or closed and not opened."""

    def __init__(self):
        super().__init__()
        self.open, self.wrong, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in VOID

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)


def read(html):
    tags = Tags()
    tags.feed(html)
    assert not tags.wrong, tags.wrong
    assert not tags.open, tags.open
    return "".join(tags.text)


ALL = [views.starting, views.running, views.finished, views.busy, lambda: views.running(64)]


@pytest.mark.parametrize("make", ALL)
def test_is_well_formed_and_needs_no_script(make):
    html = page.as_html(make())
    read(html)
    assert "<script" not in html
    assert not re.search(r'(src|href)="(?!data:)', html)


def test_everything_that_text_says_is_on_the_page():
    view = views.finished()
    said = re.sub(r"\s+", " ", read(page.as_html(view)))
    for word in ("4 ranks finished", "epoch 100/100", "epoch 6 done", "saved checkpoint <6>",
                 "UserWarning: slow", "a note <of ours>", "sent x (12 MB)", "ndarray", "0.01943",
                 "memory of a rank at most 600 MB", "1.5 times as long"):  # fmt: skip
        assert word in said, word
        if word != "ndarray":
            assert word in as_text(view) or word.startswith("sent"), word


def test_bars_are_full_in_the_end_and_images_inlined():
    html = page.as_html(views.finished())
    assert re.findall(r'"width:(\d+)%', html) == ["100"] * 4
    assert 'src="data:image/png;base64,iVBORw0KGgo="' in html
    assert html.count("data:image/svg+xml") == 2, "a curve, and the other scale"


def test_each_rank_has_a_tab_that_needs_no_script():
    html = page.as_html(views.finished())
    assert re.findall(r'<input[^>]* value="(\w+)"', html) == ["all", "0", "1", "2", "3"]
    assert html.count('name="sky-default-ab12cd-7"') == 5
    for rank in range(4):
        assert f':has(input[value="{rank}"]:checked) .g:not(.a):not(.r{rank})' in html
    assert '<span class="g a"><b>[0-3]</b> epoch 6 done\n' in html
    assert '<span class="g r2">' in html


def test_tabs_of_failed_ranks_have_a_red_dot():
    assert "::after" not in page.as_html(views.finished()) + page.live_marks(views.finished())
    view = fold(
        views.running(), RankLost(1, 0, "was killed"), RankDone(run=7, rank=2, failure=FAILURE)
    )
    inputs = [f'input[name="sky-default-ab12cd-7{{}}"][value="{rank}"]' for rank in (0, 2)]
    for html, name in ((page.as_html(view), ""), (page.live_marks(view), "-live")):
        tabs = ",".join(each.format(name) for each in inputs)
        assert f'label:has({tabs})::after{{content:" ●";content:" ●"/" failed"' in html


def shown_by(*events):
    """Labels of what is shown, in order, and the grid columns."""
    view = fold(RunView(ranks={rank: RankView() for rank in range(8)}), *events)
    html = page.as_html(view)
    assert not read(html).count("nothing to show")
    return re.findall(r"<b>\[(\d)\]</b>", html), re.findall(r"grid-template-columns:([^\"]*)", html)


def figure(rank, name=""):
    return Display(rank, {"text/html": f"<i>{rank}{name}</i>"})


def test_figures_of_several_ranks_stand_in_a_grid_in_the_order_of_ranks():
    labels, grids = shown_by(*map(figure, (3, 0, 2, 1)))
    assert labels == ["0", "1", "2", "3"]
    assert grids == ["repeat(auto-fit,minmax(min(100%,320px),1fr))"]
    # The first of each rank, then the second of each; a line of another rank is not in the way.
    out = Output(1, "stdout", "a line\n")
    assert shown_by(figure(3), out, figure(1), figure(1, "b"), figure(3, "b"))[0] == list("11313")
    # A line of the same rank is, if it shows another one after it.
    html = page.as_html(fold(views.running(), figure(0), figure(1), out, figure(1, "b")))
    assert html.index("<i>1</i>") < html.index("a line") < html.index("<i>1b</i>")
    assert shown_by(*map(figure, range(8)))[1] == ["repeat(auto-fit,minmax(min(100%,200px),1fr))"]


def test_rows_of_ranks_keep_their_height_in_the_end_and_fold_on_demand():
    html = rank_table.ranks(views.finished())
    read(html)
    assert html.count('<th scope="row"') == rank_table.ranks(views.running()).count(
        '<th scope="row"'
    )
    assert re.search(r'<details class="each" open><summary[^>]*>\[0-3\] epoch 100/100', html)
    failed = {rank: RankView(state="failed") for rank in range(4)}
    assert rank_table.ranks(RunView(ranks=failed, ended=1.0)).count('<th scope="row"') == 1
    # So do those that had nothing but a processor and memory.
    busy = views.only_measured()
    over = replace(busy, state="finished", ended=busy.now)
    rows = [rank_table.ranks(each).count('<th scope="row"') for each in (busy, over)]
    assert rows == [4, 4]
    assert "memory at most</th>" in rank_table.ranks(over)
    assert "<summary" in rank_table.ranks(over)
    # Of many ranks rows were shared before, too; one rank has nothing to fold.
    for view in (views.finished(64), views.finished(1), views.running()):
        assert "<details" not in rank_table.ranks(view)


def test_rows_of_loops_that_ended_stay_as_high_as_they_were():
    bars = [Progress(0, 0, 1, 2, "epoch"), Progress(0, 1, 1, 2, "batch", level=1)]
    live = fold(RunView(ranks={0: RankView()}), *bars)
    over = fold(live, Progress(0, 0, 2, 2, "epoch", over=True), RankDone(run=7, rank=0))
    assert "min-height" not in rank_table.ranks(live)
    assert '<div style="min-height:2.9em"><div class="lp">' in rank_table.ranks(over)
    ended = replace(over, ended=over.now)
    assert '<div style="min-height:2.9em"><div class="lp">' in rank_table.ranks(ended)


def test_figures_of_one_rank_have_the_whole_width():
    assert shown_by(figure(1), figure(0), figure(1, "b")) == (
        ["0", "1", "1"],
        ["repeat(auto-fit,minmax(min(100%,320px),1fr))"],
    )
    assert shown_by(figure(1), figure(1, "b")) == (["1", "1"], [])


def test_the_dot_stays_beside_a_title_that_wraps_and_output_begins_at_its_end():
    html = page.as_html(views.finished())
    assert re.search(r'<div class="ti"><span[^>]*>●</span><div><b>4 ranks finished</b>', html)
    assert re.search(r'<div class="out"[^>]*><div>', html)


def test_one_rank_alone_has_no_tabs():
    view = fold(RunView(ranks={0: RankView()}), Output(0, "stdout", "x\n"))
    assert "<input" not in page.as_html(view)


def test_what_is_printed_is_escaped_and_what_is_displayed_is_not():
    view = fold(
        RunView(ranks={0: RankView()}),
        Output(0, "stdout", '<script>alert("x")</script>&amp;\n'),
        Display(0, {"text/html": "<i>rich</i>"}),
    )
    html = page.as_html(view)
    assert "<script>" not in html
    assert "&amp;amp;" in html
    assert "<i>rich</i>" in html


def test_names_of_metrics_and_loops_are_escaped():
    view = fold(
        RunView(ranks={0: RankView()}),
        Progress(0, 1, 1, 2, "<b>loop", note="<b>note"),
        *(Metric(0, step, {"<b>loss": 1.0}) for step in range(3)),
    )
    html = page.as_html(view)
    assert "<b>loop" not in html
    assert "<b>note" not in html
    assert "<b>loss" not in html


def test_where_lines_are_left_out_is_said_how_to_get_them():
    view = fold(replace(views.running(), most_text=1000), Output(0, "stdout", "line\n" * 1000))
    said = read(page.as_html(view))
    assert re.search(r"… [\d,]+ lines not shown: %sky logs run=7 …", said)


def test_the_manifest_is_folded_away_unless_it_was_asked_for():
    html = page.as_html(views.finished())
    assert re.search(r"<details><summary>sent x \(12 MB\)", html)
    opened = page.as_html(replace(views.finished(), manifest_open=True))
    assert "would be sent" in opened
    assert "<summary>sent x" not in opened


def test_a_page_of_many_lines_is_not_much_larger_than_they_are():
    text = "".join(f"line {number}\n" for number in range(10_000))
    view = fold(RunView(ranks={0: RankView(), 1: RankView()}), Output(0, "stdout", text))
    assert len(page.as_html(view)) < len(text) + 10_000 * 20


def test_who_is_behind_is_said_beside_its_loop_and_shown_in_its_bar_alone():
    html = rank_table.ranks(views.running())
    heads = re.findall(r'<th scope="col"[^>]*>([^<]*)</th>', html)
    assert heads == ["rank", "progress", "remark", "loss", "cpu", "memory", "gpu"]
    # A loop's words stand beside its bar.
    assert re.findall(r"</div></div><span[^>]*>(\w+)", html) == ["epoch", "batch"] * 4
    late = next(row for row in html.split("<tr>") if "15 steps behind" in row)
    assert late.index("steps behind") < late.index("97 %")
    amber = "background:#bf8700"
    assert html.count(amber) == late.count(amber) > 0
    # What ranks are busy with is no reason for amber.
    busy = views.busy()
    assert rank_table.ranks(busy).count(amber) == html.count(amber)


def test_metrics_without_end_are_bounded_and_it_is_said():
    view = RunView(ranks={0: RankView()}, title="x")
    for step in range(3):
        many = {f"m{step}.{name}": 1.0 for name in range(5000)}
        view = fold(view, Metric(0, step, many), Metric(0, step, {"m0.7": step}))
    assert view.ranks[0].metrics["m0.7"] == 2
    html = page.as_html(view)
    assert len(html) < 100_000
    assert "each rank keeps 100 metrics; the others are left out" in read(html)


def test_the_table_of_ranks_can_be_listened_to():
    html = rank_table.ranks(views.running())
    assert re.findall(r'<th scope="row"[^>]*>(.*?)</th>', html) == [
        '0 <span class="m">· head</span>', "1", "2", "3",
    ]  # fmt: skip
    assert "" not in re.findall(r"<th[^>]*>(.*?)</th>", html)
    assert "epoch 66/100" not in "".join(re.findall(r'aria-label="(.*?)"', html))
    drawn = re.findall(r'<div class="t"[^>]*>', html)
    assert len(drawn) == 8
    assert all('aria-hidden="true"' in each for each in drawn)
    assert html.startswith('<div class="wide" role="region" tabindex="0" aria-label="ranks">')


def test_nodes_are_told_where_they_are_not_the_ranks():
    view = views.running()
    assert ">node<" not in rank_table.ranks(view)
    html = rank_table.ranks(replace(view, nodes={0: 0, 1: 0, 2: 1, 3: 1}))
    assert re.findall(r"</th><td[^>]*>(\d)</td>", html) == ["0", "0", "1", "1"]


def test_a_table_of_many_metrics_shows_the_first_and_counts_the_others():
    view = RunView(ranks={0: RankView()})
    view = fold(view, Metric(0, 1, {f"m{number}": 1.0 for number in range(13)}))
    html = rank_table.ranks(view)
    assert re.findall(r'<th scope="col"[^>]*>(\w+)</th>', html)[1:] == [f"m{n}" for n in range(12)]
    assert "1 more metric is not in this table" in read(html)


def test_a_metric_may_have_the_name_of_a_column():
    view = replace(fold(views.running(1), Metric(0, 50, {"rank": 7.5, "cpu": 0.25})), nodes={0: 3})
    html = rank_table.ranks(view)
    said = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", html)
    assert said.count("7.5") == said.count("0.25") == 1
    assert said.count("97 %") == 1


def test_notes_that_make_a_table_are_one_and_lines_elsewhere():
    table = NoteTable(
        "seconds", ("rank", "a<b"), (("0", "3 s"), ("1", "<4 s")), ("more",), ("r 0", "r 1")
    )
    view = replace(views.finished(), tables=(table,))
    html = page.as_html(view)
    said = read(html)
    assert re.search(
        r'aria-label="seconds"><table><tr><th [^>]*>rank</th><th [^>]*>a&lt;b</th>', html
    )
    assert "1&lt;4 s" in re.sub("<[^>]*>", "", html)
    assert said.index("3 s") < said.index("more") < said.index("a note <of ours>")
    assert "r 0" not in said
    assert "r 0\nr 1\na note <of ours>" in as_text(view)
    found = record.as_json(view)
    assert found["notes"] == ["a note <of ours>"]
    assert found["tables"][0]["rows"] == [["0", "3 s"], ["1", "<4 s"]]


def test_what_the_error_below_says_is_not_said_twice():
    words = {"headline": "ValueError on rank 2 of 4: bad", "error_notes": ("line 4: raise",)}
    view = replace(views.finished(), state="failed", **words)
    whole = read(page.as_html(view))
    assert "ValueError on rank 2 of 4: bad" in whole and "line 4: raise" in whole
    brief = replace(view, short_headline="ValueError on rank 2 of 4")
    said = read(page.as_html(brief))
    assert "ValueError on rank 2 of 4" in said and "a note <of ours>" in said
    assert ": bad" not in said and "line 4: raise" not in said
    assert as_text(brief) == as_text(view)
    found = record.as_json(brief)
    assert found["short_headline"] == "ValueError on rank 2 of 4"
    assert found | {"short_headline": ""} == record.as_json(view)
    assert found["error_notes"] == ["line 4: raise"]
    assert found["notes"] == ["a note <of ours>"]
