"""What may stand in for machines that were taken back, and what that costs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from skyward_nb.providers.aws.rental_records import RunningInstance
from skyward_nb.providers.aws.substitutes import bill_of, lasting, offers_alike, share_of
from skyward_nb.words.offers import Bill, InstanceType, Offer, Price
from skyward_nb.words.provider_access import AWSAccess
from skyward_nb.words.spec import PoolSpec

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")


def kind(name, gpu=None, gpus=0, *, efa=False, each=40):
    return InstanceType(
        name=name, arch="x86_64", cpus=8, memory=32, gpu=gpu, gpus=gpus, gpu_memory=each, efa=efa
    )


def offer(name, price, *, spot=False, region="us-east-1", gpu=None, gpus=0, efa=False, zones=ZONES):
    price = None if price is None else Price(dollars=price, source="a test")
    of = kind(name, gpu, gpus, efa=efa)
    return Offer(type=of, region=region, zones=zones, spot=spot, price=price)


def machine(zone="us-east-1b", name="m.large", price: float | None = 1.0, spot=False):
    return RunningInstance(
        instance=f"i-{zone}", region="us-east-1", zone=zone, type=name, spot=spot, price=price,
        private="10.0.0.1", host_key="",
    )  # fmt: skip


def spec(**options):
    return PoolSpec(provider="aws", aws=AWSAccess(), nodes=2, on_preempt="replace", **options)


def names(offers):
    return [(each.type.name, each.spot, each.zones[0]) for each in offers]


def test_the_same_type_in_the_same_zone_comes_first():
    there = [
        offer("other.large", 0.5, spot=True),
        offer("m.large", 0.6, spot=True),
        offer("m.large", 0.6, spot=True, region="us-west-2"),
        offer("m.large", 1.0),
    ]
    found, refused = offers_alike(spec(), there, [machine("us-east-1c")], [machine("us-east-1b")])
    assert names(found) == [
        ("m.large", True, "us-east-1b"),
        ("m.large", False, "us-east-1b"),
        ("other.large", True, "us-east-1b"),
    ]
    assert found[0].zones == ("us-east-1b", "us-east-1c", "us-east-1a")
    assert refused == []


def test_no_gpu_has_less_memory_than_the_lost_one():
    there = [
        replace(offer("p4d", 1.0), type=kind("p4d", "A100", 8)),
        replace(offer("p4de", 1.0), type=kind("p4de", "A100", 8, each=80)),
    ]
    for lost, alike in (("p4de", ["p4de"]), ("p4d", ["p4d", "p4de"])):
        pool = [machine(name=lost)], [machine(name=lost)]
        found, _ = offers_alike(spec(), there, *pool)
        assert [each.type.name for each in found] == alike


def test_where_all_were_lost_it_is_their_zone():
    found, _ = offers_alike(spec(), [offer("m.large", 1.0)], [machine("us-east-1c")], [])
    assert found[0].zones == ("us-east-1c", "us-east-1a", "us-east-1b")


def test_ranks_find_the_same_accelerators_there():
    there = [
        offer("m.large", 1.0, gpu="A10G", gpus=1),
        offer("big", 1.0, gpu="A10G", gpus=4),
        offer("else", 1.0, gpu="L4", gpus=1),
        offer("like", 1.0, gpu="A10G", gpus=1),
    ]
    found, _ = offers_alike(spec(), there, [machine()], [machine()])
    assert [each.type.name for each in found] == ["m.large", "like"]


def test_a_type_that_is_offered_no_more_has_nothing_like_it():
    found, refused = offers_alike(spec(), [offer("else", 1.0)], [machine()], [machine()])
    assert found == [] and refused == []


def test_what_speaks_by_efa_stays_in_its_zone():
    there = [offer("m.large", 1.0, efa=True), offer("n", 1.0, efa=True, zones=("us-east-1a",))]
    found, _ = offers_alike(spec(), there, [machine()], [machine("us-east-1b")])
    assert [(each.type.name, each.zones) for each in found] == [("m.large", ("us-east-1b",))]


@pytest.mark.parametrize(
    ("options", "price", "before", "refused"),
    [
        ({}, 4.0, 1.0, ""),  # 5 in all, which is confirm_above
        ({}, 4.5, 1.0, "the pool would cost $5.50 an hour, over confirm_above=5 and the $2.00 that it cost"),
        ({"confirm_above": None}, 400.0, 1.0, ""),
        ({"max_cost": 9.0}, 400.0, 1.0, ""),
        ({"max_cost": 9.0}, None, 1.0, "its price is not known, and max_cost= needs it"),
        ({"confirm_above": 1.0}, 1.0, 1.0, ""),  # no more than it cost
        ({}, None, 1.0, "its price is not known"),
        ({}, None, None, ""),  # that was agreed to without a price
    ],
)  # fmt: skip
def test_what_nobody_has_agreed_to_is_left_out(options, price, before, refused):
    pool = [machine("us-east-1b", price=before)], [machine("us-east-1a", price=before)]
    found, out = offers_alike(spec(**options), [offer("m.large", price)], *pool)
    assert out == ([("m.large in us-east-1", refused)] if refused else [])
    assert bool(found) != bool(refused)


def test_a_bill_goes_on_with_what_was_spent():
    before = Bill(dollars=2.0, began=1000.0, before=0.5, max_cost=9.0)
    bill = bill_of([machine(), machine("us-east-1a", price=3.0, spot=True)], before, 1000.0 + 1800)
    assert bill.dollars == 4.0 and bill.before == pytest.approx(1.5) and bill.began == 2800.0
    assert bill.what == "1 × m.large in us-east-1b, 1 × spot m.large in us-east-1a"
    assert bill.since == bill_of([machine()], bill, 9000.0).since == before.since == 1000.0
    assert bill_of([], before, 2800.0).dollars == 0
    assert bill_of([machine(price=None)], before, 2800.0).dollars is None


def test_new_machines_may_cost_what_the_lost_ones_would_have():
    # Two machines of one dollar an hour, five dollars: they end after two and a half hours.
    began, hour = 0.0, 3600.0
    at_start = Bill(dollars=2.0, began=began, max_cost=5.0)
    others = [machine()]
    alone = bill_of(others, at_start, 0.5 * hour)  # one is lost after half an hour
    now = 1.0 * hour  # another is rented half an hour later
    share = share_of(alone, others, began + 2.5 * hour, now)
    assert share == pytest.approx(2.0)
    assert share_of(alone, others, None, now) == pytest.approx(3.5)
    assert share_of(Bill(dollars=2.0, began=0.0), others, None, now) is None
    assert share_of(Bill(dollars=None, began=0.0, max_cost=5.0), others, None, now) is None


def test_what_lasts_too_short_for_what_is_left_of_a_budget_is_left_out():
    there = [offer("m.large", 1.0), offer("m.large", 0.25, spot=True), offer("n.large", None)]
    found, out = lasting(there, 2, 60.0 / 3600, 120.0)
    assert names(found) == [("m.large", True, "us-east-1a")]
    assert out == [
        ("m.large in us-east-1", "the rest of max_cost= would be spent in 30 s"),
        ("n.large in us-east-1", "its price is not known, and max_cost= needs it"),
    ]
