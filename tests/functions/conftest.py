"""A pool that the tests of a file use one after another."""

from __future__ import annotations

import pytest
from functions.examples import same
from leaks import leaves_nothing

import skyward_nb as sky


@pytest.fixture(scope="module")
def shared():
    with leaves_nothing(), sky.Compute(nodes=2, quiet=True) as pool:
        yield pool


@pytest.fixture
def pool(shared):
    """A pool of two ranks, in which nothing runs."""
    yield shared
    assert same(1) @ shared == [1, 1]
