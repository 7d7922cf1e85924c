"""Functions on machines that share no files with this one."""

from __future__ import annotations

import re
import threading
import time

import pytest
from leaks import leaves_nothing
from msgspec.structs import replace
from waiting import until

import skyward_nb as sky
from skyward_nb.options import arguments
from skyward_nb.store.remote_store import RemoteStore
from skyward_nb.words.errors import BudgetSpent
from skyward_nb.words.offers import Bill

np = pytest.importorskip("numpy")
ARRAY = np.arange(500_000)


@sky.function
def total(array):
    return array.sum()


@sky.function
def filled(size):
    return np.full(size, sky.instance_info().rank)


@pytest.fixture(scope="module")
def known():
    """`provider="fake"` may be said."""
    read = arguments.of_text
    with pytest.MonkeyPatch.context() as patched:
        said = lambda option, name, text: text if text == "fake" else read(option, name, text)  # noqa: E731
        patched.setattr(arguments, "of_text", said)
        yield


@pytest.fixture(scope="module")
def three(known):
    with leaves_nothing(), sky.Compute(provider="fake", nodes=3, quiet=True) as pool:
        yield pool


@pytest.fixture
def compute(three, monkeypatch):
    """A pool of three machines, in which nothing runs."""
    yield three
    monkeypatch.undo()
    assert total(np.ones(3)) @ three == [3] * 3


@pytest.mark.extensive
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
    download = RemoteStore._download

    def late(store, digest, tick):
        comes.set()
        waited.append(others_went_on.wait(60))
        return download(store, digest, tick)

    monkeypatch.setattr(RemoteStore, "_download", late)
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


@pytest.fixture(scope="module")
def two(known):
    compute = sky.Compute(provider="fake", nodes=2, quiet=True)
    compute._specs = (replace(compute.spec, on_preempt="replace"),)
    with leaves_nothing(), compute:
        yield compute


@pytest.fixture
def pair(two, monkeypatch):
    """A pool of two machines that gets another one for each that is taken back."""
    assert total(ARRAY) @ two == [ARRAY.sum()] * 2
    yield two
    monkeypatch.undo()
    assert total(ARRAY) @ two == [ARRAY.sum()] * 2


def machines(compute):
    return compute._runner.pool.context.generations.machines


def names(compute):
    return [each.name for each in machines(compute)]


def when_sending(compute, monkeypatch, what):
    """Does this whenever something begins to be sent."""
    stores = compute._runner.pool.context.stores
    telling = stores.telling

    def told(text, size, watch):
        if "sending" in text and size:
            what()
        return telling(text, size, watch)

    monkeypatch.setattr(stores, "telling", told)


@pytest.mark.extensive
def test_calls_go_on_with_another_machine_for_one_that_was_taken_back(pair):
    was = names(pair)
    machines(pair)[1].take_back()
    futures = [total(ARRAY) > pair for _ in range(6)]
    ended = [future.exception() for future in futures]
    # Those that had begun there are lost with it; all others run.
    assert all(each is None or isinstance(each, sky.RankFailure) for each in ended)
    assert total(ARRAY) @ pair == [ARRAY.sum()] * 2
    assert [set(each) for each in filled(400_000) @ pair] == [{0}, {1}]
    assert names(pair) == [was[0], f"{was[1]}+"]


@pytest.mark.parametrize(
    ("how", "node"),
    [
        ("call", 0),
        pytest.param("broadcast", 1, marks=pytest.mark.extensive),
        pytest.param("map", 1, marks=pytest.mark.extensive),
        pytest.param("futures", 1, marks=pytest.mark.extensive),
        pytest.param("map", 0, marks=pytest.mark.extensive),
    ],
)
def test_a_call_whose_machine_ends_while_it_is_sent_runs_with_another(pair, monkeypatch, how, node):
    first, told, was = machines(pair), [], names(pair)

    def end():
        """Where another call goes on already, at the second one."""
        told.append(1)
        if machines(pair) is first and len(told) > (node and how in ("futures", "map")):
            time.sleep(0.3 * node)  # the one before has ended, and nobody has heard that
            first[node].take_back()

    when_sending(pair, monkeypatch, end)
    match how:
        case "call":
            assert total(ARRAY) >> pair == ARRAY.sum()
        case "broadcast":
            assert total(ARRAY) @ pair == [ARRAY.sum()] * 2
        case "futures":
            ended = [future.exception() for future in [total(ARRAY) > pair for _ in range(6)]]
            assert all(each is None or isinstance(each, sky.RankFailure) for each in ended)
        case _:
            arrays = [np.full(200_000, each) for each in range(8)]
            assert pair.map(total, arrays) == [each.sum() for each in arrays]
    assert total(ARRAY) @ pair == [ARRAY.sum()] * 2
    assert names(pair)[node] == f"{was[node]}+"


def test_a_call_that_is_still_sent_while_a_machine_is_replaced_runs_too(pair, monkeypatch):
    first, goes_on, pool = machines(pair), threading.Event(), pair._runner.pool
    sent, was = [], names(pair)

    def wait():
        sent.append(threading.get_ident())
        if len(sent) == 1:
            assert goes_on.wait(60)
        elif machines(pair) is first:
            first[1].take_back()

    when_sending(pair, monkeypatch, wait)
    futures = [total(ARRAY) > pair]
    until(lambda: sent)
    futures.append(total(ARRAY + 1) > pair)
    until(lambda: not pool.is_ready)
    goes_on.set()
    assert [future.result(60) for future in futures] == [ARRAY.sum(), (ARRAY + 1).sum()]
    assert not pool.context.state.runs and names(pair) == [was[0], f"{was[1]}+"]


@pytest.mark.extensive
def test_what_is_sent_to_a_generator_whose_machine_has_ended_says_so(pair):
    @sky.function
    def echo():
        got = None
        while True:
            got = yield got

    stream = echo() >> pair
    next(stream)
    name = names(pair)[0]
    machines(pair)[0].take_back()
    with pytest.raises(sky.MachineLost, match=r"has ended \(it was taken back\).*; call it again"):
        stream.send(ARRAY)
    with pytest.raises(
        sky.RankDied, match=rf"rank 0 ended with {re.escape(name)} \(it was taken back\)"
    ):
        stream.close()
    assert total(ARRAY) @ pair == [ARRAY.sum()] * 2


def test_calls_are_work_that_may_cost_no_more_than_is_agreed_to(compute, monkeypatch):
    monkeypatch.setattr(
        compute._runner.pool.context, "bill", Bill(dollars=1.0, began=0.0, max_cost=1.0)
    )
    with pytest.raises(BudgetSpent, match=r"runs nothing new\. Leave the `with` block"):
        total(np.ones(3)) >> compute


def test_a_pool_that_ended_for_its_budget_says_in_python_how_to_have_another(known, no_leaks):
    compute = sky.Compute(provider="fake", nodes=1, quiet=True).start()
    pool = compute._runner.pool
    pool.context.bill = Bill(dollars=1.0, began=0.0, max_cost=1.0)
    says = r"max_cost=1 is spent.* \(it was cut\)\. Leave the `with` block, .* larger max_cost="
    with pytest.raises(BudgetSpent, match=says):
        pool.closing.gone("it was cut")
    with pytest.raises(BudgetSpent, match=says) as raised:
        total(np.ones(3)) >> compute
    assert "%sky" not in raised.value.message
    compute.close()
