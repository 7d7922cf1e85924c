"""The permutation that splits are shuffled by: the same everywhere, and without visible order."""

import math
from collections import Counter
from itertools import pairwise, permutations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skyward_nb.runtime.permutation import SMALL, permuted, permuted_array

SIZES = st.one_of(st.integers(1, 40), st.integers(SMALL - 2, SMALL + 40), st.integers(1, 20_000))


def whole(size, seed):
    return permuted(range(size), size, seed)


def chi_square(counts, cells):
    """How many standard deviations the statistic lies from what chance would give."""
    total = sum(counts)
    expected = total / cells
    statistic = sum((count - expected) ** 2 for count in counts) / expected
    statistic += (cells - len(counts)) * expected  # cells that nothing came to
    return (statistic - (cells - 1)) / math.sqrt(2 * (cells - 1))


@given(SIZES, st.integers())
@example(SMALL, 0)
@example(SMALL + 1, 0)
@example(4096, 1)
def test_every_place_once(size, seed):
    assert sorted(whole(size, seed)) == list(range(size))


@given(SIZES, st.integers(), st.integers(1, 9), st.data())
def test_plain_and_vectorised_are_the_same_at_any_places(size, seed, step, data):
    pytest.importorskip("numpy")
    places = range(data.draw(st.integers(0, size - 1)), size, step)
    found = permuted_array(places, size, seed)
    assert found.tolist() == permuted(places, size, seed)
    assert found.dtype == "int64"


def test_more_places_than_fit_a_block():
    numpy = pytest.importorskip("numpy")
    size = 300_001
    found = permuted_array(range(size), size, 5)
    assert (numpy.sort(found) == numpy.arange(size)).all()
    assert found[299_000:].tolist() == permuted(range(299_000, size), size, 5)


def test_the_numbers_never_change():
    """Splits that were made with another release are still the same."""
    assert whole(10, 0) == [4, 9, 0, 8, 5, 7, 2, 6, 1, 3]
    assert permuted(range(5), 10_000_000, 0) == [7564726, 2211602, 6253391, 6281958, 1223776]
    assert permuted(range(3), 10**12, -1) == [410451440458, 847489986482, 970123727076]


def test_no_place_is_evaluated_that_is_not_asked_for():
    assert len(permuted(range(7, 10**10, 10**9), 10**10, 3)) == 10


@pytest.mark.parametrize("size", [12, 500, SMALL + 1, 5000])
def test_seeds_differ(size):
    seeds = [tuple(whole(size, seed)) for seed in (0, 1, -1, 2**70, 2**70 + 1)]
    assert len(set(seeds)) == len(seeds)
    for one, other in pairwise(seeds):
        assert sum(a == b for a, b in zip(one, other, strict=True)) < 10


def test_all_orders_of_a_few_are_equally_likely():
    found = Counter(tuple(whole(4, seed)) for seed in range(4800))
    assert set(found) == set(permutations(range(4)))
    assert abs(chi_square(found.values(), 24)) < 4


@pytest.mark.parametrize("size", [30, SMALL + 1])
def test_every_item_comes_to_every_place_equally_often(size):
    """A few items, over many seeds; places in ten classes."""
    places = (0, 1, size // 2, size - 1)
    found = {place: Counter() for place in places}
    for seed in range(600):
        for place in places:
            (item,) = permuted(range(place, place + 1), size, seed)
            found[place][item * 10 // size] += 1
    for counts in found.values():
        assert abs(chi_square(counts.values(), 10)) < 4


@pytest.mark.parametrize("size", [SMALL, SMALL + 1, 3000, 65_536, 100_003])
def test_one_permutation_shows_no_order(size):
    """Against chance: where places go, what neighbours do, and how many stay where they are."""
    order = whole(size, 7)
    grid = Counter((place * 16 // size, item * 16 // size) for place, item in enumerate(order))
    assert chi_square(grid.values(), 256) < 4
    for distance in (1, 2, 4, 32, 256):
        steps = Counter(
            (b - a) % size * 16 // size for a, b in zip(order, order[distance:], strict=False)
        )
        assert chi_square(steps.values(), 16) < 5, distance
    rises = sum(a < b for a, b in pairwise(order))
    assert abs(rises - size / 2) < 4 * math.sqrt(size / 12)
    assert sum(place == item for place, item in enumerate(order)) < 9


@pytest.mark.parametrize("size", [SMALL + 1, 2100])
def test_pairs_of_places_go_apart_as_chance_has_them(size):
    """The weakness of a network with too few rounds: places of one row keep their distance."""
    found = Counter()
    for seed in range(1500):
        one, other = permuted(range(2), size, seed)
        found[(one ^ other) & 31] += 1
    assert abs(chi_square(found.values(), 32)) < 4
