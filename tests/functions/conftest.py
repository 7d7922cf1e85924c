"""A pool that the tests of a file use one after another, and a namespace for each test."""

from __future__ import annotations

import pytest
from functions.examples import same
from leaks import leaves_nothing

import skyward_nb as sky


@pytest.fixture(autouse=True)
def _own_home(home_namespace):
    """What pools take for the script is not left to other tests."""


@pytest.fixture(scope="module")
def shared():
    with leaves_nothing(), sky.Compute(nodes=2, quiet=True, grace=20) as pool:
        yield pool


@pytest.fixture
def pool(shared):
    """A pool of two ranks, in which nothing runs."""
    yield shared
    assert same(1) @ shared == [1, 1]
