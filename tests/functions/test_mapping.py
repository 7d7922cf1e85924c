"""How many items of a map go into one batch."""

from skyward_nb.functions.mapping import BatchSizes


def taken(sizes, items, seconds=None):
    """The batches that a map is cut into, each item of which takes so long."""
    at, found = 0, []
    while at < items:
        found.append(sizes.next(at))
        at += found[-1]
        if seconds is not None:
            sizes.took(seconds)
    return found


def test_one_item_until_it_is_known_how_long_it_takes():
    assert taken(BatchSizes(3, 4), 3) == [1, 1, 1]


def test_quick_items_are_shared_out_once():
    assert taken(BatchSizes(1000, 4, 1e-7), 1000) == [250] * 4
    assert taken(BatchSizes(10, 4, 1e-7), 10) == [3, 3, 3, 1]


def test_slow_items_go_one_by_one():
    assert taken(BatchSizes(8, 4), 8, seconds=1.0) == [1] * 8


def test_batches_get_smaller_and_are_never_for_next_to_nothing():
    batches = taken(BatchSizes(100_000, 4, 1e-4), 100_000, seconds=1e-4)
    assert sum(batches) == 100_000
    assert batches == sorted(batches, reverse=True)
    assert max(batches) <= 4000, "of four ranks one ends each tenth of a second"
    assert min(batches[:-1]) >= 20, "two milliseconds"


def test_of_many_ranks_too_each_ends_twice_a_second():
    assert BatchSizes(1_000_000, 64, 1e-4).next(0) == 5000


def test_a_batch_is_well_within_its_timeout():
    assert BatchSizes(1000, 4, 0.01, timeout=0.2).next(0) == 5
    assert BatchSizes(1000, 4, 0.01, timeout=0.001).next(0) == 1


def test_what_was_known_of_a_function_is_corrected():
    sizes = BatchSizes(1000, 4, 1e-6)
    assert sizes.next(0) == 250
    sizes.took(1.0)
    assert sizes.next(250) == 1
