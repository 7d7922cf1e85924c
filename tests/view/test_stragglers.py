"""Ranks that are behind, or took longer."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from skyward_nb.protocol.events import Progress
from skyward_nb.view.run_view import RankView
from skyward_nb.view.slow_ranks import slow_in
from skyward_nb.view.stragglers import behind, current, imbalance


def at(done, total=100, *, over=False, level=0, text="", unit="it"):
    return RankView(bars=(Progress(0, 1 + level, done, total, text, 20.0, level, unit, over=over),))


@pytest.mark.parametrize(
    ("dones", "said"),
    [
        ((66, 66, 51, 66), {2: "15 steps behind"}),
        ((66, 66, 63, 66), {}),
        ((3, 1), {1: "2 steps behind"}),
        ((3, 2), {}),
        ((5,), {}),
        ((0, 0, 0), {}),
    ],
)
def test_a_rank_well_behind_is_named(dones, said):
    assert behind({rank: at(done) for rank, done in enumerate(dones)}) == said


@given(st.lists(st.integers(0, 5), min_size=2, max_size=9))
def test_each_is_compared_with_the_median_of_the_others(dones):
    found = behind({rank: at(100 * done, 600) for rank, done in enumerate(dones)})
    for rank, done in enumerate(dones):
        lack = 100 * (statistics.median(dones[:rank] + dones[rank + 1 :]) - done)
        assert found.get(rank) == (f"{lack:,.0f} steps behind" if lack >= 50 else None)


def test_loops_that_differ_are_not_compared():
    assert behind({0: at(90, text="train"), 1: at(10, text="test")}) == {}
    assert behind({0: at(90, total=100), 1: at(10, total=50)}) == {}


def test_a_loop_that_was_left_is_not_behind():
    assert behind({0: at(90), 1: at(10, over=True), 2: at(90)}) == {}


def test_fast_loops_are_not_compared_within_a_blink():
    fast = {rank: RankView(bars=(Progress(0, 1, done, 10_000, "", 1.0),)) for rank, done in
            enumerate((1000, 600, 1000))}  # fmt: skip
    assert behind(fast) == {}


def test_the_unit_of_the_loop_is_said():
    assert behind({0: at(90, unit="batches"), 1: at(10, unit="batches")}) == {
        1: "80 batches behind"
    }


def test_the_outermost_loop_that_goes_on_counts():
    bars = at(3, over=True).bars + at(5).bars + at(7, level=1).bars
    assert current(RankView(bars=bars)).done == 5


def test_a_rank_that_took_longer_is_named():
    done = {rank: RankView(state="done", ended=10.0 + took) for rank, took in enumerate((4, 5, 9))}
    assert imbalance(done, 10.0) == "rank 2 took 1.8 times as long as the others (9.0 s, 5.0 s)"


def test_time_at_a_breakpoint_is_nobodys_slowness():
    done = {rank: RankView(state="done", ended=10.0 + took) for rank, took in enumerate((4, 5, 9))}
    assert imbalance({**done, 1: replace(done[1], halted=True)}, 10.0) == ""
    waits = {0: RankView(waits=(0.9,) * 9), 1: RankView(waits=(0.0,) * 9)}
    assert slow_in(waits)
    assert slow_in({**waits, 1: replace(waits[1], halted=True)}) == {}


def test_short_runs_and_small_differences_are_nothing_to_tell():
    done = {rank: RankView(state="done", ended=took) for rank, took in enumerate((0.1, 0.9))}
    assert imbalance(done, 0.0) == ""
    done = {rank: RankView(state="done", ended=took) for rank, took in enumerate((10.0, 11.5))}
    assert imbalance(done, 0.0) == ""
