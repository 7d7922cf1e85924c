"""Which of several specs a pool is started with, and what leads to the next."""

from __future__ import annotations

import pytest
from leaks import leaves_nothing
from msgspec.structs import replace

import skyward_nb as sky
from skyward_nb.functions import alternatives
from skyward_nb.functions.alternatives import dry_run_lines, first_that_starts
from skyward_nb.providers.aws.provisioning import affordable
from skyward_nb.words.errors import LaunchError, NotAgreed, NothingFits, OptionError, StartError
from skyward_nb.words.offers import InstanceType, Offer, Price, Quote
from skyward_nb.words.spec import PoolSpec

KIND = InstanceType(name="g6.xlarge", arch="x86_64", cpus=4, memory=16)


def rented(nodes, dollars):
    price = None if dollars is None else Price(dollars=dollars, source="a test")
    return PoolSpec(provider="aws", nodes=nodes), Offer(type=KIND, region="us-east-1", price=price)


class Noted:
    def __init__(self):
        self.notes = []

    def note(self, *said):
        self.notes += said


@pytest.fixture
def tried(monkeypatch):
    """Starts specs by their number of nodes; those in `none` cannot be had."""

    def start(specs, selection="cheapest", none=(), error=None):
        prices = {spec.nodes: offer for spec, offer in specs if offer is not None}

        def quote_for(spec):
            if spec.nodes not in prices:
                return None
            if prices[spec.nodes] == "none":
                raise NothingFits("no type fits")
            return Quote(nodes=spec.nodes, offers=(prices[spec.nodes],))

        monkeypatch.setattr(alternatives, "quote_for", quote_for)
        order, display = [], Noted()

        def bring_up(spec, _):
            order.append(spec.nodes)
            if spec.nodes in none:
                raise error or LaunchError("x", [("g6.xlarge in us-east-1a", "no capacity")])
            return spec

        found = [spec for spec, _ in specs]
        try:
            return first_that_starts(found, selection, display, bring_up), order, display.notes
        except sky.SkyError as problem:
            return problem, order, display.notes

    return start


def test_the_cheapest_is_first_and_what_is_ones_own_costs_nothing(tried):
    specs = [rented(1, 2.0), rented(2, 0.5), (PoolSpec(provider="ssh", nodes=3), None)]
    assert tried(specs)[1] == [3]
    assert tried(specs, none=[3])[1] == [3, 2]  # one dollar for both of its nodes
    assert tried([rented(1, None), rented(2, 3.0)])[1] == [2]
    assert tried(specs, "first")[1] == [1]


def test_what_cannot_be_had_leads_to_the_next_and_says_why(tried):
    chosen, order, notes = tried([rented(1, 1.0), rented(2, 2.0)], "first", none=[1])
    assert (chosen.nodes, order) == (2, [1, 2])
    assert len(notes) == 1 and notes[0].startswith("sky.Spec number 1: ")
    none = (PoolSpec(provider="aws", nodes=1), "none")
    chosen, order, notes = tried([none, rented(2, 2.0)])
    assert (chosen.nodes, order, notes) == (2, [2], ["sky.Spec number 1: no type fits"])


def test_a_budget_that_is_too_little_leads_to_the_next(tried):
    spec, offer = rented(1, 27.0)
    with pytest.raises(NothingFits, match=r"max_cost=0\.1 is spent in 13 s") as error:
        affordable(replace(spec, max_cost=0.1), [offer])
    chosen, order, notes = tried([rented(1, 1.0), rented(2, 2.0)], none=[1], error=error.value)
    assert (chosen.nodes, order) == (2, [1, 2])
    assert notes[0].startswith("sky.Spec number 1: max_cost=0.1 is spent")


def test_where_none_can_be_had_each_reason_is_told(tried):
    error, order, _ = tried([rented(1, 1.0), rented(2, 2.0)], none=[1, 2])
    assert isinstance(error, StartError) and order == [1, 2]
    assert "none of 2 sky.Spec can be had" in error.message
    assert "sky.Spec number 1" in error.detail and "no capacity" in error.detail


def test_what_is_no_lack_of_machines_ends_it(tried):
    said_no = NotAgreed(2.0, "you did not agree")
    assert tried([rented(1, 1.0), rented(2, 2.0)], none=[1], error=said_no)[:2] == (said_no, [1])
    # Of one alone, its own error.
    error, _, notes = tried([rented(1, 1.0)], none=[1])
    assert isinstance(error, LaunchError) and notes == []


def test_a_dry_run_shows_all_of_them(tried, monkeypatch):
    monkeypatch.setattr(alternatives, "dry_lines", lambda spec: [f"offers for {spec.nodes}"])
    specs = [rented(1, 2.0), rented(2, 0.5), (PoolSpec(provider="aws", nodes=3), "none")]
    tried(specs)
    lines = list(dry_run_lines([spec for spec, _ in specs], "cheapest"))
    assert [line.partition(":")[0] for line in lines] == [
        "sky.Spec number 2", "offers for 2", "sky.Spec number 1", "offers for 1", "cannot be had",
    ]  # fmt: skip
    assert lines[0].endswith("$1.00 / h")


@pytest.mark.parametrize(
    ("selection", "specs", "says"),
    [
        ("dearest", [sky.Spec()], "selection='dearest': there is"),
        ("first", [], "chooses from several"),
    ],
)
def test_a_selection_that_there_is_not(selection, specs, says):
    with pytest.raises(OptionError, match=says):
        sky.Compute(*specs, selection=selection)


@sky.function
def place():
    info = sky.instance_info()
    return info.node, info.worker, info.workers_per_node, info.total_accelerators


def test_a_pool_of_the_second_where_the_first_is_missing_here(capsys):
    gpus = sky.Spec(provider=sky.Local(), accelerator="A100:2")
    cpus = sky.Spec(provider="local", accelerator="A100:2", simulate=True)
    with leaves_nothing(), sky.Compute(gpus, cpus, selection="first", quiet=True) as pool:
        assert place() @ pool == [(0, 0, 2, 2), (0, 1, 2, 2)]
        assert pool.spec.simulate
        assert sky.get_pool(pool.name) is pool
    with pytest.raises(sky.PoolError, match="there is no pool"):
        sky.get_pool(pool.name)


def test_so_many_calls_at_once_as_a_worker_has():
    with leaves_nothing(), sky.Compute(worker=sky.Worker(concurrency=3), quiet=True) as pool:
        assert {each[1] for each in sky.gather(*(place() for _ in range(3))) >> pool} <= {0, 1, 2}
        assert len(place() @ pool) == 3
