"""Which ranks of a synchronous loop compute longer than the others."""

import random

import pytest

from skyward_nb.view.slow_ranks import slow_in_all, slow_ranks, slow_words, times

TEN = 10


@pytest.mark.parametrize(
    ("waits", "slow"),
    [
        ([[0.85] * TEN, [0.84] * TEN, [0.86] * TEN, [0.1] * TEN], [3]),
        ([[0.5] * TEN, [0.0] * TEN], [1]),
        ([[0.6] * TEN, [0.6] * TEN, [0.0] * TEN, [0.1] * TEN], [2, 3]),
        # Alike, whatever part of the time communication takes.
        ([[0.0] * TEN] * 4, []),
        ([[0.9] * TEN] * 4, []),
        ([[0.5] * TEN, [0.45] * TEN, [0.6] * TEN, [0.4] * TEN], []),
        # Most ranks are slow: that is how long it takes.
        ([[0.8] * TEN, [0.1] * TEN, [0.1] * TEN], []),
        # The first rank saves a model now and then, or was stopped for a while.
        ([([0.5, 0.5, 0.0] * 4)[:TEN], [0.5] * TEN], []),
        # The second slowest itself waits for most of its time: all wait for one rank.
        ([[0.86] * TEN, [0.84] * TEN, [0.03] * TEN, [0.74] * TEN], [2]),
        # Too short to tell, and alone.
        ([[0.9] * 3, [0.0] * 3], []),
        ([[0.9] * TEN, [0.0] * 3], []),
        ([[0.9] * TEN], []),
        ([], []),
        # Of old, not any more.
        ([[0.9] * 20 + [0.3] * 20, [0.0] * 20 + [0.3] * 20], []),
        # No rank computes less than can be told from nothing.
        ([[1.0] * TEN, [1.0] * TEN], []),
    ],
)
def test_who_waits_least_computes_longest(waits, slow):
    assert list(slow_ranks(dict(enumerate(waits)))) == slow


def test_ranks_that_other_load_stops_by_chance_are_not_slow():
    for seed in range(300):
        chance = random.Random(seed)
        waits = {rank: [min(1.0, max(0.0, chance.gauss(0.45, 0.15))) for _ in range(20)]
                 for rank in range(8)}  # fmt: skip
        assert slow_ranks(waits) == {}


def test_a_slow_rank_is_found_among_them():
    for seed in range(300):
        chance = random.Random(seed)
        waits = {rank: [min(1.0, max(0.0, chance.gauss(0.1 if rank == 5 else 0.75, 0.1)))
                        for _ in range(12)] for rank in range(8)}  # fmt: skip
        assert list(slow_ranks(waits)) == [5]


def test_how_it_is_said():
    slow = slow_ranks({0: [0.85] * TEN, 1: [0.85] * TEN, 2: [0.1] * TEN})
    assert slow == pytest.approx({2: 6.0})
    assert (
        slow_words(slow) == "rank 2 computes 6 × as long as the others, which wait in collectives"
    )
    assert slow_words(slow, over=True).endswith(
        "computed 6 × as long as the others, which waited in collectives"
    )
    assert slow_words({1: 2.0, 3: 1.8}).startswith("ranks 1,3 compute 2.0 × as long as the others")
    assert slow_words({}) == ""
    assert [times(1.53), times(3.4), times(45.0)] == ["1.5 ×", "3 ×", "45 ×"]


def test_of_a_whole_run_one_share_is_enough():
    assert slow_in_all({0: 0.9, 1: 0.0, 2: 0.9}) == pytest.approx({1: 10.0})
