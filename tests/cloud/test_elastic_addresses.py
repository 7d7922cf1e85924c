"""Machines with several network cards, which EC2 gives no public address: each has an Elastic IP address of its pool."""

from __future__ import annotations

import asyncio
import shutil

import pytest
from cloud.renter import CPU, GPU, launches, offer

from skyward_nb.providers.aws import launch, termination
from skyward_nb.providers.aws.elastic_addresses import release_spare
from skyward_nb.words.errors import AccountError, LaunchError
from skyward_nb.words.provider_access import AWSAccess


def swept():
    from cloud.offered import swept

    return swept()


def costs(api):
    return {kind: names for kind, names in api.left().items() if kind != "groups"}


def test_all_cards_are_used_and_each_machine_has_an_address(api, renter):
    made = renter(nodes=2)
    found = made.launch(offer(GPU, zones="b"))
    asked = launches(api)[0].parameters
    kinds = [asked[f"NetworkInterface.{number}.InterfaceType"] for number in range(1, 5)]
    assert kinds == ["efa", "efa-only", "efa-only", "efa-only"]
    assert not [key for key in asked if key.endswith("AssociatePublicIpAddress")]
    assert len({each.public for each in found}) == 2 and all(each.public for each in found)
    actions = api.actions()
    assert actions.count("AllocateAddress") == actions.count("AssociateAddress") == 2
    assert actions.index("AllocateAddress") < actions.index("RunInstances")
    (made_there,) = [each for each in made.entry.record.made if each.kind == "address"]
    assert (made_there.region, made_there.name) == ("us-east-1", "default-abc")
    assert not made.end()
    assert api.left() == {}
    assert api.actions()[-2:].count("ReleaseAddress") or "ReleaseAddress" in api.actions()


@pytest.mark.parametrize(
    ("options", "kind", "cards"),
    [
        ({"public_ip": False}, GPU, 4),  # a VPN, a jump host
        ({"placement": "no"}, GPU, 0),
        ({}, CPU, 0),
        ({"warm": 7200.0}, GPU, 1),  # it would be charged for while they are stopped
    ],
)
def test_others_have_none(api, renter, options, kind, cards):
    made = renter(nodes=2, aws=AWSAccess(region="us-east-1", **options))
    made.launch(offer(kind))
    asked = launches(api)[0].parameters
    kinds = [key for key in asked if key.endswith(".InterfaceType")]
    assert len(kinds) == cards
    assert "AllocateAddress" not in api.actions()
    assert not made.end()
    assert api.left() == {}


def test_where_the_account_may_have_no_more_one_card_is_used(api, renter):
    made = renter(nodes=6)
    found = made.launch(offer(GPU))
    asked = launches(api)[0].parameters
    assert [key for key in asked if key.endswith("NetworkCardIndex")] == [
        "NetworkInterface.1.NetworkCardIndex"
    ]
    assert asked["NetworkInterface.1.InterfaceType"] == "efa"
    assert all(each.public for each in found) and len(found) == 6
    told = made.words()
    for words in (f"{GPU.name} uses 1 of its 4 network cards", "L-0263D0A3", "public_ip=no"):
        assert words in told
    assert not api.left().get("addresses")
    assert not made.end()
    assert api.left() == {}


def test_a_policy_that_knows_no_addresses_leaves_no_record(api, renter):
    """docs/aws-policy.json had no such calls before: what may not be asked for is not there."""
    api.fail("DescribeAddresses", "UnauthorizedOperation", times=0)
    made = renter(nodes=2)
    with pytest.raises(AccountError, match=r"docs/aws-policy\.json"):
        made.launch(offer(GPU))
    assert not launches(api)
    assert not made.end()
    assert api.left() == {} and not made.entry.folder.exists()


def test_what_may_not_be_removed_keeps_nothing_else(api, renter):
    made = renter(nodes=2)
    made.launch(offer(GPU))
    api.fail("DescribeAddresses", "UnauthorizedOperation")
    assert "UnauthorizedOperation" in str(made.end())
    assert set(api.left()) == {"addresses"}
    assert not made.end()
    assert api.left() == {}


@pytest.mark.parametrize(
    ("code", "told"), [("UnauthorizedOperation", False), ("RequestLimitExceeded", True)]
)
def test_a_sweep_that_could_not_look_for_addresses_says_so(api, renter, code, told):
    made = renter(nodes=2)
    made.launch(offer(GPU))
    assert not made.end()
    api.fail("DescribeAddresses", code, times=0)
    report = swept()
    assert ("Elastic IP addresses in us-east-1" in str(report)) is told


def test_who_may_not_allocate_is_told_before_machines_are_paid_for(api, renter):
    api.fail("AllocateAddress", "UnauthorizedOperation")
    made = renter(nodes=2)
    with pytest.raises(AccountError, match=r"docs/aws-policy\.json"):
        made.launch(offer(GPU))
    assert not launches(api)
    assert not made.end()
    assert api.left() == {}


def test_what_was_allocated_for_another_zone_is_used_and_for_another_region_released(api, renter):
    api.capacity(GPU.name, "us-east-1b", 0)
    made = renter(nodes=2)
    made.launch(offer(GPU, zones="bc"))
    assert api.actions().count("AllocateAddress") == 2
    assert not made.end()
    for zone in "bc":
        api.capacity(GPU.name, f"us-east-1{zone}", 0)
    made = renter("other-abc", nodes=2)
    found = made.launch(offer(GPU, zones="bc"), offer(GPU, "us-west-2", "ab"))
    assert {each.region for each in found} == {"us-west-2"}
    assert [each.split()[0] for each in api.left()["addresses"]] == ["us-west-2"] * 2
    assert not made.end()
    assert api.left() == {}


@pytest.mark.parametrize("action", ["AllocateAddress", "AssociateAddress"])
def test_answers_that_are_lost_leave_nothing(api, renter, action):
    api.lose(action)
    made = renter(nodes=2)
    found = made.launch(offer(GPU))
    assert all(each.public for each in found)
    assert not made.end()
    assert api.left() == {}


def test_machines_that_cannot_have_an_address_are_ended(api, renter, monkeypatch):
    monkeypatch.setattr(launch, "_AGAINS", 1)
    api.fail("AssociateAddress", "InvalidParameterValue")
    made = renter(nodes=2)
    with pytest.raises(LaunchError, match="AssociateAddress"):
        made.launch(offer(GPU, zones="b"))
    assert "machines" not in api.left()
    assert not made.end()
    assert api.left() == {}


def test_an_address_in_use_is_left_for_the_next_try(api, renter):
    made = renter(nodes=2)
    made.launch(offer(GPU))
    api.fail("ReleaseAddress", "InvalidIPAddress.InUse")
    left = made.end()
    assert [
        each for each in left.others if each == "Elastic IP addresses of default-abc (us-east-1)"
    ]
    assert len(api.left()["addresses"]) == 1
    assert not made.end()
    assert api.left() == {}


def test_machines_that_may_run_on_can_be_reached(api, renter, monkeypatch):
    """They are told to power off by SSH then."""
    made = renter(nodes=2)
    made.launch(offer(GPU))

    async def alive(*_: object):
        return ["i-1"]

    with monkeypatch.context() as patched:
        patched.setattr(termination, "end_machines", alive)
        assert [each for each in made.end().others if each.startswith("Elastic IP addresses of ")]
    assert len(api.left()["addresses"]) == 2
    assert not made.end()
    assert api.left() == {}


def test_spare_ones_are_released_and_those_in_use_are_not(api, renter):
    made = renter(nodes=2)
    made.launch(offer(GPU))
    asyncio.run(release_spare(made.cloud, made.entry))
    assert len(api.left()["addresses"]) == 2
    assert not made.end()


def test_those_of_a_machine_that_was_replaced_are_released(api, renter):
    made = renter(nodes=2)
    first, _ = made.launch(offer(GPU))
    ending = termination.end_some(made.cloud, made.entry, first.region, [first.instance])
    assert asyncio.run(ending) == []
    asyncio.run(release_spare(made.cloud, made.entry, {first.instance}))
    assert len(api.left()["addresses"]) == 1
    assert not made.end()
    assert api.left() == {}


def test_a_sweep_releases_those_whose_record_is_gone(api, renter):
    made = renter(nodes=2)
    made.launch(offer(GPU))
    shutil.rmtree(made.entry.folder)
    report = swept()
    assert len(report.machines) == 2 and len(report.addresses) == 2
    assert "2 Elastic IP addresses (" in str(report)
    assert not costs(api)
