"""Functions on machines that share no files with this one."""

from __future__ import annotations

import threading

import pytest
from msgspec.structs import replace

import skyward_nb as sky
from skyward_nb.api import arguments
from skyward_nb.wire.remote_store import RemoteStore
from skyward_nb.words.errors import BudgetSpent
from skyward_nb.words.offers import Bill

np = pytest.importorskip("numpy")


@pytest.fixture(autouse=True)
def _own_home(home_namespace):
    """What pools take for the script is not left to other tests."""


@sky.function
def total(array):
    return array.sum()


@sky.function
def filled(size):
    return np.full(size, sky.instance_info().rank)


@pytest.fixture
def compute(no_leaks, monkeypatch):
    monkeypatch.setattr(arguments, "_of_text", _fake(arguments._of_text))
    with sky.Compute(provider="fake", nodes=3, quiet=True) as pool:
        yield pool


def _fake(read):
    return lambda option, name, text: text if text == "fake" else read(option, name, text)


def test_calls_with_large_arguments_and_values(compute):
    array = np.arange(500_000)
    assert total(array) >> compute == array.sum()
    assert total(array) @ compute == [array.sum()] * 3
    assert [set(each) for each in filled(400_000) @ compute] == [{0}, {1}, {2}]
    futures = [total(np.full(100_000, i)) > compute for i in range(8)]
    assert [future.result() for future in futures] == [i * 100_000 for i in range(8)]


def test_others_go_on_while_a_large_value_comes(compute, monkeypatch):
    comes, others_went_on = threading.Event(), threading.Event()
    waited = []
    fetched = RemoteStore._fetched

    def late(store, digest, tick):
        comes.set()
        waited.append(others_went_on.wait(60))
        return fetched(store, digest, tick)

    monkeypatch.setattr(RemoteStore, "_fetched", late)
    future = filled(400_000) > compute
    assert comes.wait(60)
    assert total(np.ones(3)) >> compute == 3
    others_went_on.set()
    assert len(future.result()) == 400_000
    assert waited == [True]


def test_arguments_of_a_call_that_waits_are_as_they_were(compute):
    array = np.ones(1_000_000)
    futures = [total(array) > compute for _ in range(6)]
    array[:] = 7
    assert [future.result() for future in futures] == [1_000_000] * 6


def test_a_map_and_generators(compute):
    assert compute.map(total, [np.full(50_000, i) for i in range(12)]) == [
        i * 50_000 for i in range(12)
    ]

    @sky.function
    def count(n):
        for i in range(n):
            yield np.full(30_000, i)

    found = [[each[0] for each in stream] for stream in count(5) @ compute]
    assert found == [list(range(5))] * 3


def test_calls_go_on_with_another_machine_for_one_that_was_taken_back(no_leaks, monkeypatch):
    monkeypatch.setattr(arguments, "_of_text", _fake(arguments._of_text))
    compute = sky.Compute(provider="fake", nodes=2, quiet=True)
    compute._spec = replace(compute._spec, on_preempt="replace")
    array = np.arange(500_000)
    with compute:
        assert total(array) @ compute == [array.sum()] * 2
        compute._runner.pool._generations.machines[1].take_back()
        futures = [total(array) > compute for _ in range(6)]
        ended = [future.exception() for future in futures]
        # Those that had begun there are lost with it; all others run.
        assert all(each is None or isinstance(each, sky.RankFailure) for each in ended)
        assert total(array) @ compute == [array.sum()] * 2
        assert [set(each) for each in filled(400_000) @ compute] == [{0}, {1}]
        names = [each.name for each in compute._runner.pool._generations.machines]
    assert names == ["fake0", "fake1+"]


def test_calls_are_work_that_may_cost_no_more_than_is_agreed_to(compute):
    compute._runner.pool.bill = Bill(dollars=1.0, began=0.0, max_cost=1.0)
    with pytest.raises(BudgetSpent):
        total(np.ones(3)) >> compute
