"""A run in one line."""

import pytest
from msgspec.structs import replace
from picture import views

from skyward_nb.picture.one_line import one_line
from skyward_nb.protocol.events import Output, Progress, RankDone, RankReady, Step
from skyward_nb.view.folding import fold
from skyward_nb.view.run_view import RankView, RunView

METRIC = "loss 0.01943 (0.01887 – 0.02)"


@pytest.mark.parametrize(
    ("view", "line"),
    [
        (
            views.starting(),
            "Starting 4 ranks · 2.0 s · nodes 0-3 imports torch … 1.5 s · 1 of 4 ranks ready",
        ),
        (
            views.running(),
            "Running on 4 ranks · 20.0 s · ▅▅▄▅ epoch 51 to 66/100 · 62% · 3.11 it/s · 12.1 s left"
            f" · rank 2 15 steps behind · {METRIC}",
        ),
        (
            views.busy(),
            "Running on 4 ranks: taking in 512 MB · 20.0 s · ▅▅▄▅ epoch 51 to 66/100 · 62%"
            f" · 3.11 it/s · 12.1 s left · rank 2 15 steps behind · {METRIC}",
        ),
        (
            views.running(1),
            "Running on 1 ranks · 20.0 s · ███████░░░░░ epoch 66/100 · 66% · 3.3 it/s · 10.3 s left"
            " · loss 0.02",
        ),
        (
            views.running(40),
            "Running on 40 ranks · 20.0 s · ███████░░░░░ epoch 51 to 66/100 · 65% · 3.28 it/s"
            " · 10.5 s left · rank 2 15 steps behind · loss 0.01481 (0.01124 – 0.02)",
        ),
    ],
    ids=["starting", "running", "busy", "one rank", "many ranks"],
)
def test_a_run_in_one_line(view, line):
    assert one_line(view) == line


def running(ranks, **changes):
    each = {rank: RankView() for rank in range(ranks)}
    return RunView(title="Running", state="running", ranks=each, ran_from=3.0, now=5.0, **changes)


def test_the_time_is_that_of_the_run_and_those_that_have_ended_are_counted():
    view = running(4)
    assert one_line(view) == "Running · 2.0 s"
    view = fold(view, RankDone(run=1, rank=0), RankDone(run=1, rank=2))
    assert one_line(view) == "Running · 2.0 s · 2 of 4 ranks still running"


def test_without_a_loop_the_line_that_a_rank_has_open_is_told():
    view = fold(running(2), Output(1, "stdout", "a\nwaiting \x1b[1m.."))
    assert one_line(view) == "Running · 2.0 s · [1] waiting .."
    view = fold(view, Progress(0, 1, 3, None, "", 1.0))
    assert one_line(view) == "Running · 2.0 s · 3 done · 3 it/s"


def test_the_loop_that_most_ranks_are_in_is_told():
    alike = [Progress(rank, 1, rank, 2, "train", 0.0) for rank in (0, 1, 2)]
    view = fold(running(4), *alike, Progress(3, 1, 1, 2, "test", 0.0))
    assert one_line(view) == "Running · 2.0 s · ▁▄█ train 0 to 2/2 · 50%"
    empty = fold(running(2), *(Progress(rank, 1, 0, 0, "none", 0.0) for rank in (0, 1)))
    assert one_line(empty) == "Running · 2.0 s · ██ none 0/0 · 100%"


def test_nodes_that_are_done_with_a_step_are_not_told_of():
    view = RunView(title="Starting", awaited=2, now=1.0)
    view = fold(view, Step((0,), "agent"), Step((1,), "agent"), Step((0,), "agent", done=True))
    assert one_line(view) == "Starting · 1.0 s · node 1 agent … 0 ms · 0 of 2 ranks ready"
    view = fold(view, Step((1,), "agent", done=True), RankReady(1, 0, 7), RankReady(1, 1, 7))
    assert one_line(replace(view, now=2.0)) == "Starting · 2.0 s · ranks ready ✓"
