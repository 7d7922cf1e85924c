"""About how large values are."""

import sys

import pytest

from skyward_nb.pickling.sizes import looks_big, measure


def test_python_objects_count_with_their_parts_and_once():
    text = "x" * 10_000
    size, more = measure([text, text, {"a": text}])
    assert 10_000 < size < 11_000
    assert not more
    assert measure(3) == (sys.getsizeof(3), False)


def test_counting_stops_where_it_would_take_long():
    size, more = measure([[n] for n in range(100_000)])
    assert more
    assert size > 500_000


def test_what_refuses_to_be_looked_at_is_looked_at_anyway():
    class Shy:
        __slots__ = ("a", "b")

        def __len__(self):
            raise ValueError

        def __getattr__(self, name):
            raise RuntimeError(name)

    shy = Shy.__new__(Shy)
    assert measure(shy)[0] > 0
    assert not looks_big(shy)


def test_arrays_count_with_their_elements():
    numpy = pytest.importorskip("numpy")
    assert measure({"a": numpy.zeros(1000)})[0] > 8000
    assert not looks_big(numpy.zeros(1000))
    assert looks_big(numpy.empty(1 << 23))
    assert looks_big(range(3)) is False
    assert looks_big([0] * 100_000)


def test_tensors_and_frames():
    torch = pytest.importorskip("torch")
    pandas = pytest.importorskip("pandas")
    assert measure(torch.nn.Linear(100, 100))[0] > 40_400
    assert measure(pandas.DataFrame({"a": range(1000)}))[0] >= 8000
