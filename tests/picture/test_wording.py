"""A view in words and rows."""

import math

import pytest
from msgspec.structs import replace
from picture import views

from skyward_nb.names.plan import ManifestRow
from skyward_nb.picture import wording
from skyward_nb.picture.one_line import one_line
from skyward_nb.picture.page import as_html
from skyward_nb.picture.text import as_text
from skyward_nb.protocol.events import Metric, Progress, RankLost, Remark, Step, Waited
from skyward_nb.reports.status import balance
from skyward_nb.view.folding import fold
from skyward_nb.view.run_view import MOST_WINDOWS, RankView, RunView
from skyward_nb.words.offers import Bill


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0084, "8 ms"),
        (0.9999, "1.0 s"),
        (3.14, "3.1 s"),
        (59.96, "1:00"),
        (727, "12:07"),
        (3600, "1:00:00"),
        (90061, "25:01:01"),
    ],
)
def test_clock(seconds, words):
    assert wording.clock(seconds) == words


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([0.5], "0.5"),
        ([0.5, 0.5], "0.5"),
        ([1.0, 3.0], "2 (1 – 3)"),
        ([1.0, math.nan], "nan"),
        ([math.inf, 1.0], "inf (1 – inf)"),
    ],
)
def test_metrics_of_several_ranks(values, words):
    assert wording.spread(values) == words


def test_few_ranks_that_run_have_a_row_each():
    rows = wording.rank_rows(views.running())
    assert [row.ranks for row in rows] == [(0,), (1,), (2,), (3,)]
    assert rows[2].remark == "15 steps behind"
    assert [row.node for row in rows] == ["0", "1", "2", "3"]
    outer, inner = rows[0].bars
    assert outer.words == "epoch 66/100 · 66% · 3.3 it/s · 10.3 s left"
    assert (inner.words, inner.level) == ("batch 3/10 · 30% · 3 batch/s · 2.3 s left", 1)
    assert (rows[0].cpu, rows[0].memory) == ("97 %", "600 MB")
    assert rows[0].gpu == "90 % · 1 GB of 8 GB · 61 °C"
    assert wording.time_words(views.running()) == "20.0 s · about 19.2 s left"


def test_many_ranks_share_rows_and_those_behind_have_their_own():
    view = views.running(64)
    rows = wording.rank_rows(view)
    assert [len(row.ranks) for row in rows] == [63, 1]
    assert rows[0].bars[0].words.startswith("epoch 66/100")
    assert wording.remarks(view) == ("behind the others: rank 2",)


def waiting(view):
    """The view once the last rank is known to keep the others waiting."""
    shares = {rank: 0.1 if rank == max(view.ranks) else 0.85 for rank in view.ranks}
    return fold(view, *(Waited(rank, share) for rank, share in shares.items() for _ in range(30)))


def test_the_rank_that_the_others_wait_for_is_named():
    (said,) = wording.remarks(waiting(views.running()))
    assert said == "rank 3 computes 6 × as long as the others, which wait in collectives"
    assert "rank 3 computing 6 × as long" in one_line(waiting(views.running()))
    assert balance(waiting(views.running()))[-1] == f"now: {said}"
    over = waiting(views.finished())
    past = "rank 3 computed 6 × as long as the others, which waited in collectives"
    assert wording.remarks(over)[0] == past
    assert balance(over)[-1] == f"in the last cell {past}"
    assert len(over.ranks[0].waits) == MOST_WINDOWS


def test_who_runs_no_part_of_it_is_not_shown_for_its_waits():
    assert fold(views.running(), Waited(9, 0.5)).ranks == views.running().ranks


def test_in_the_end_ranks_that_tell_the_same_share_a_row():
    (row,) = wording.rank_rows(views.finished())
    assert row.ranks == (0, 1, 2, 3)
    assert row.bars[0].part == 1
    assert row.metrics == {"loss": "0.01943 (0.01887 – 0.02)"}
    assert (row.cpu, row.memory, row.gpu) == ("", "", "")
    assert wording.remarks(views.finished()) == (
        "rank 2 took 1.5 times as long as the others (32.0 s, 21.0 s)",
    )
    assert wording.peak_words(views.finished()) == ("memory of a rank at most 600 MB",)


def test_a_rank_that_was_lost_has_a_row():
    view = fold(RunView(ranks={0: RankView(), 1: RankView()}, ended=1.0), RankLost(1, 1, "killed"))
    assert [(row.ranks, row.state) for row in wording.rank_rows(view)] == [((1,), "lost")]


def test_ranks_that_say_the_same_beside_their_bars_keep_it():
    bars = [Progress(rank, 1, 2, 2, note="loss=3", over=True) for rank in range(2)]
    assert wording.bar_row(bars, "done", 0.0).words == "2/2 · 100% · loss=3"
    other = Progress(2, 1, 2, 2, note="loss=4", over=True)
    assert wording.bar_row([*bars, other], "done", 0.0).words == "2/2 · 100%"


@pytest.mark.parametrize(
    ("bar", "words"),
    [
        (Progress(0, 1, 3, None, "", 1.0), "3 done · 3 it/s"),
        (Progress(0, 1, 0, 0, "", 0.0), "0/0 · 100%"),
        (
            Progress(0, 1, 9_010, 10_000, "", 100.0, unit="step", skipped=9_000),
            "9,010/10,000 · 90% · 10 s/step · 2:45:00 left",
        ),
        (Progress(0, 1, 3, 10, "", 5.0, skipped=3), "3/10 · 30%"),
        (Progress(0, 1, 1, 4, "x", 10.0), "x 1/4 · 25% · 10 s/it · 30.0 s left"),
        (Progress(0, 1, 0.5, 2.0, "", 0.0), "0.5/2 · 25%"),
        (Progress(0, 1, 12, 10, "", 0.0), "12/10 · 120%"),
        (Progress(0, 1, 1, 2, "", 0.0, note="loss=3"), "1/2 · 50% · loss=3"),
        (Progress(0, 1, 2, 2, "", 0.0, note="loss=3", over=True), "2/2 · 100% · loss=3"),
        (Progress(0, 1, 2_000_000, 4_000_000, "", 0.0), "2,000,000/4,000,000 · 50%"),
        (Progress(0, 1, 3, -5, "", 0.0), "3 done"),
        (Progress(0, 1, 2_220, None, "", 1.0), "2,220 done · 2220 it/s"),
        (Progress(0, 1, 6_850_000, None, "", 1.0), "6,850,000 done · 6.85M it/s"),
        (
            Progress(0, 1, 5e9, 1e10, "", 10.0, unit="B"),
            "5 GB/10 GB · 50% · 500 MB/s · 10.0 s left",
        ),
    ],
)
def test_loops_in_words(bar, words):
    (row,) = wording.rank_rows(fold(RunView(ranks={0: RankView()}), bar))
    assert row.bars[0].words == words
    assert row.bars[0].part is None or 0 <= row.bars[0].part <= 1


def test_what_was_sent():
    rows = [ManifestRow(f"n{n}", "sent", "int", 1000 * n) for n in range(8)]
    rows += [
        ManifestRow("x", "unchanged"),
        ManifestRow("y", "kept on ranks"),
        ManifestRow("z", "kept on ranks"),
    ]
    assert wording.sent_words(rows, 28_000) == (
        "sent n7, n6, n5, n4, n3, n2 and 2 more (28 kB)",
        "1 unchanged",
        "2 kept on ranks",
    )
    assert wording.sent_words([], 0) == ()


def test_steps_of_nodes():
    assert wording.step_rows(views.starting()) == [
        ("nodes 0-3", "agent ✓ 500 ms", "imports ▸ torch … 1.5 s"),
        ("1 of 4 ranks ready",),
    ]


def test_the_time_line_of_rented_nodes_is_kept():
    view = replace(views.starting(), bill=Bill(dollars=0.17, began=0.0))
    view = fold(view, Step((4,), "agent"))
    view = fold(replace(view, now=3.5), Step((4,), "agent", done=True))
    assert wording.ready_words(view) == ()
    view = replace(view, state="running")
    assert wording.ready_words(view) == ("agent 3.5 s",)
    assert wording.ready_words(replace(view, bill=None)) == ()
    assert "agent 3.5 s" in as_text(view) and "agent 3.5 s" in as_html(view)


def test_while_it_runs_it_is_said_that_most_is_spent():
    bill = Bill(dollars=1.0, began=1000.0, max_cost=1.0)
    view = replace(views.running(), bill=bill, wall=1000.0, now=3000.0)
    (said,) = [each for each in wording.remarks(view) if "of max_cost=1" in each]
    assert said.startswith("$0.833 of max_cost=1 is spent: the machines end in 10:00")
    for other in (replace(view, now=2000.0), replace(view, ended=3000.0)):
        assert not [each for each in wording.remarks(other) if "max_cost" in each]


def test_what_is_noted_while_machines_come_is_there_in_the_end():
    view = fold(replace(views.starting(), notes=("first",)), Remark("next zone"))
    assert view.notes == ("first", "next zone")


def test_what_all_ranks_are_busy_with_is_in_the_headline():
    assert wording.headline(views.busy()) == "Running on 4 ranks: taking in 512 MB"
    some = replace(views.busy(), phase="packing x")
    assert wording.headline(some) == "Running on 4 ranks: packing x"


def test_a_metric_of_some_ranks_alone():
    view = fold(
        RunView(ranks={0: RankView(), 1: RankView()}, ended=1.0), Metric(1, 0, {"acc": 0.5})
    )
    assert [row.metrics for row in wording.rank_rows(view)] == [{"acc": "0.5"}]


def test_a_loop_that_does_not_go_on_says_so_and_promises_no_end():
    view = replace(views.running(), now=60.0)
    rows = wording.rank_rows(view)
    assert rows[0].bars[0].words == "epoch 66/100 · 66% · 3.3 it/s · no step for 40.0 s"
    assert "left" not in wording.time_words(view)


def words_of(*loops):
    (row,) = wording.rank_rows(fold(RunView(ranks={0: RankView()}), *loops))
    return [bar.words for bar in row.bars]


def test_of_many_finished_loops_the_last_are_told_and_the_others_counted():
    loops = [Progress(0, n, 1, 1, f"loop {n}", over=True) for n in range(20)]
    last = ["loop 18 1/1 · 100%", "loop 19 1/1 · 100%"]
    assert words_of(*loops) == ["18 loops done", *last]
    goes_on = Progress(0, 20, 1, 4, "epoch")
    assert words_of(*loops, goes_on) == ["18 loops done", *last, "epoch 1/4 · 25%"]
    assert words_of(*loops[:3]) == [f"loop {n} 1/1 · 100%" for n in range(3)]


def rows_while(*batches, end=False):
    """How many rows loops have after each batch of events, and how many they keep."""
    view, found = RunView(ranks={0: RankView()}), []
    for batch in batches:
        view = fold(view, *batch)
        (row,) = wording.rank_rows(replace(view, ended=view.now) if end else view)
        found.append((len(row.bars), row.loop_rows))
    return found


def test_loops_keep_the_rows_that_they_took():
    going = [Progress(0, n, 1, 2, f"loop {n}") for n in range(6)]
    done = [Progress(0, n, 2, 2, f"loop {n}", over=True) for n in range(6)]
    # All have had a row: none is folded when they end, one after another.
    assert rows_while(going, *([each] for each in done)) == [(6, 6)] * 7
    # One after another: what ended folds so that there are never more rows, nor less.
    turns = [step for pair in zip(going, done, strict=True) for step in ([pair[0]], [pair[1]])]
    heights = [bars for bars, _ in rows_while(*turns)]
    assert heights == sorted(heights)
    assert heights[-1] == 4
    # Inner loops that leave nothing stay in their rows until others take them: none is blank, none goes.
    inner = [Progress(0, 7, 1, 2, "batch", level=1)]
    gone = [Progress(0, 7, 2, 2, "batch", level=1, over=True, keeping=False)]
    outer = [Progress(0, 0, 1, 2, "epoch")]
    batches = (outer, inner, gone, inner, gone)
    assert rows_while(*batches) == [(1, 1), (2, 2), (2, 2), (2, 2), (2, 2)]
    assert rows_while(*batches, end=True)[-1] == (2, 2)
    check = [Progress(0, 8, 2, 2, "check", level=1, over=True, keeping=False)]
    assert rows_while(*batches, check, end=True)[-1] == (2, 2)


def test_loops_that_go_on_beyond_what_is_kept_are_counted_once():
    loops = [Progress(0, n, done, 4, f"loop {n}") for done in (1, 2) for n in range(10)]
    assert words_of(*loops)[-1] == "and 2 more loops"
    ended = [Progress(0, n, 4, 4, f"loop {n}", over=True, keeping=False) for n in range(2)]
    again = Progress(0, 8, 3, 4, "loop 8"), Progress(0, 9, 3, 4, "loop 9")
    assert words_of(*loops, *ended, *again)[-1] == "loop 9 3/4 · 75%"
