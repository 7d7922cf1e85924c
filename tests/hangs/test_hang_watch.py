"""When ranks are asked where they are, and what is said of that."""

import pytest

from skyward_nb.hangs.hang import StalledRun, is_a_hang
from skyward_nb.hangs.hang_watch import HangWatch
from skyward_nb.hangs.rank_locations import RankLocation, SourceLocation
from skyward_nb.picture import wording
from skyward_nb.protocol.events import Stack
from skyward_nb.view.run_view import RunView


def test_ranks_are_asked_after_ten_seconds_and_then_ever_more_seldom():
    watch = HangWatch(0.0)
    asked = [second for second in range(200) if watch.ranks_to_ask({1, 0}, float(second))]
    assert asked == [10, 20, 40, 80, 160]


def test_progress_puts_it_off():
    watch = HangWatch(0.0)
    watch.progressed(9.0)
    assert watch.ranks_to_ask({0}, 18.9) == ()
    assert watch.ranks_to_ask({2, 0}, 19.0) == (0, 2)
    watch.progressed(19.1)
    assert watch.found(Stack(0, "late")) is None, "they go on"
    assert watch.ranks_to_ask({0}, 29.1) == (0,)


def test_what_is_found_is_told_once_all_have_answered():
    watch = HangWatch(0.0)
    assert watch.found(Stack(0, "asked by somebody else")) is None
    watch.ranks_to_ask({0, 1}, 10.0)
    assert watch.found(Stack(1, "b")) is None
    assert watch.found(Stack(2, "no rank of the run")) is None
    assert watch.found(Stack(0, "a")) == {0: "a", 1: "b"}


def at(waits_in="", line=1):
    return RankLocation((SourceLocation("Cell In[4]", line, "", is_users=True),), waits_in)


@pytest.mark.parametrize(
    ("running", "ended", "is_hang"),
    [
        ({0: at("barrier")}, {1: "finished"}, True),
        ({0: at("barrier"), 1: at()}, {}, True),
        ({0: at("barrier"), 1: at("all_reduce")}, {}, True),
        ({0: at("all_reduce"), 1: at("all_reduce")}, {}, True),
        ({0: at(), 1: at()}, {}, False),
        ({0: at()}, {1: "finished"}, False),
        ({0: at("backward"), 1: at("backward")}, {}, False),
        ({0: at("barrier")}, {}, False),
        ({}, {0: "finished"}, False),
    ],
)
def test_ranks_that_work_are_no_hang(running, ended, is_hang):
    assert is_a_hang(StalledRun(running, ended)) is is_hang


def test_ranks_that_wait_for_some_that_do_not_run_the_cell():
    assert is_a_hang(StalledRun({0: at("barrier")}, outside=(1,)))


def test_it_stands_in_the_picture_while_the_run_goes_on():
    words = "rank 0 waits in barrier for rank 1, which has finished"
    assert wording.remarks(RunView(hang=words)) == (words,)
    assert wording.remarks(RunView(hang=words, ended=1.0)) == ()
