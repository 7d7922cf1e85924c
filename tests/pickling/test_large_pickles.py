"""Pickles that are read where they lie: as any other, however they are made up."""

import pickle

import pytest

from skyward_nb.pickling.object_table import Unpickler

LARGE = [
    b"x" * 3_000_000,
    ["y" * 3_000_000, b"z" * 70_000, 1.5],
    {str(n): n for n in range(50_000)},
    bytearray(3_000_000),
]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", LARGE, ids=["bytes", "list", "dict", "bytearray"])
def test_values_are_as_they_were(value, protocol):
    data = pickle.dumps(value, protocol)
    reader = Unpickler(memoryview(data), [])
    assert reader.load() == value
    reader.forget_bytes()


def test_objects_are_found_by_their_numbers():
    inner = ["inner"]
    reader = Unpickler(memoryview(pickle.dumps([inner, b"x" * 3_000_000], 5)), [])
    found = reader.load()
    assert reader.find(1) is found[0]
    assert reader.find(0) is found


def test_one_that_is_cut_short_is_refused():
    data = pickle.dumps(b"x" * 3_000_000, 5)
    with pytest.raises((EOFError, pickle.UnpicklingError)):
        Unpickler(memoryview(data)[:-100], []).load()
