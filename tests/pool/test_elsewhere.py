"""Pools whose machines share no files with this one: the same engine, by way of lines alone."""

from __future__ import annotations

import numpy as np
import pytest
from pools import request, values

from skyward_nb.wire.payload import unpack


@pytest.fixture
def fake(make):
    def make_one(**options):
        return make(**{"provider": "fake", "nodes": 3, **options})

    return make_one


def test_a_cell_runs_on_machines_of_their_own(fake):
    pool = fake()
    where = "import os\n(os.environ['RANK'], os.environ['NODE_RANK'], os.environ['SKYWARD_POOL'])"
    found = values(pool, where)
    assert [(rank, node) for rank, node, _ in found] == [("0", "0"), ("1", "1"), ("2", "2")]
    assert len({folder for _, _, folder in found}) == 3


def test_large_values_go_there_and_come_back(fake):
    pool = fake()
    namespace = {"big": np.arange(3_000_000)}
    sums = values(pool, "big.sum()", namespace)
    assert sums == [namespace["big"].sum()] * 3
    outcome = pool.run(
        request(pool, "import os, numpy as np\nnp.full(2_000_000, int(os.environ['RANK']))"),
        lambda _: None,
    )
    for rank, end in outcome.done.items():
        assert end.value.data is None, "it goes by way of the store"
        assert (unpack(end.value, pool.store) == rank).all()
    pool.clean(outcome)
