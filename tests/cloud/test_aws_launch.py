"""From offers to machines, against the API alone: what is asked for, where it goes on, what it leaves."""

from __future__ import annotations

import base64
import contextlib
import re

import pytest
from cloud.renter import CPU, GPU, OTHER, launches, offer
from msgspec.structs import replace

from skyward_nb.providers.aws import launch, launch_request, rental_records
from skyward_nb.providers.aws.images import MachineImage
from skyward_nb.providers.aws.launch_request import LaunchRequest
from skyward_nb.providers.aws.network import PoolSubnets
from skyward_nb.providers.aws.user_data import LEASE
from skyward_nb.words.errors import AccountError, LaunchError
from skyward_nb.words.provider_access import AWSAccess


def the(values):
    (value,) = set(values)
    return value


# ── what is asked for ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("profile", "field"),
    [("trainer", "Name"), ("arn:aws:iam::123456789012:instance-profile/trainer", "Arn")],
)
def test_machines_have_the_role_of_a_profile(api, renter, profile, field):
    made = renter(nodes=1, aws=AWSAccess(region="us-east-1", instance_profile=profile))
    with contextlib.suppress(LaunchError):  # there is no such profile here
        made.launch()
    asked = launches(api)[0].parameters
    assert asked[f"IamInstanceProfile.{field}"] == profile


def test_machines_are_asked_for_as_they_should_be(api, renter):
    made = renter(nodes=2)
    first, second = made.launch()
    assert first.zone == second.zone == "us-east-1a" and first.price == 0.1
    assert first.public and first.private != second.private
    (call,) = launches(api)
    asked = call.parameters
    assert (asked["MinCount"], asked["MaxCount"]) == ("2", "2")
    assert asked["ClientToken"] == "sky-default-abc-0"
    assert asked["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert asked["MetadataOptions.HttpTokens"] == "required"
    assert asked["MetadataOptions.HttpPutResponseHopLimit"] == "1"
    disk = "BlockDeviceMapping.1.Ebs."
    assert {
        key.removeprefix(disk): value for key, value in asked.items() if key.startswith(disk)
    } == {
        "VolumeType": "gp3",
        "VolumeSize": "100",
        "Encrypted": "true",
        "DeleteOnTermination": "true",
    }
    kinds = {value for key, value in asked.items() if key.endswith("ResourceType")}
    assert kinds == {"instance", "volume", "network-interface"}
    assert "skyward:pool" in asked.values() and made.entry.record.owner in asked.values()
    assert not made.end()
    assert api.left() == {} and not rental_records.entries()


def test_no_disk_of_an_image_stays(api, renter, monkeypatch):
    async def image_for(*_: object):
        return MachineImage("ami-0123456789abcdef0", "/dev/sda1", 8, "ubuntu", (("/dev/sdf", 9),))

    monkeypatch.setattr(launch_request, "image_for", image_for)
    made = renter(nodes=1)
    made.launch()
    asked = launches(api)[0].parameters
    disk = "BlockDeviceMapping.2."
    assert {key.removeprefix(disk): asked[key] for key in asked if key.startswith(disk)} == {
        "DeviceName": "/dev/sdf", "Ebs.VolumeSize": "9", "Ebs.Encrypted": "true", "Ebs.DeleteOnTermination": "true", "Ebs.VolumeType": "gp3",
    }  # fmt: skip
    assert not made.end()
    assert api.left() == {}


def test_a_machine_in_a_zone_of_a_city_is_one_of_its_region(api, renter):
    made = renter(nodes=1)
    work = LaunchRequest(made.spec, made.cloud, made.entry, None, None)
    work._subnets["us-west-2"] = PoolSubnets("vpc-1", {"us-west-2-lax-1a": "subnet-1"})
    said = {"Placement": {"AvailabilityZone": "us-west-2-lax-1a"}, "PublicIpAddress": "1.2.3.4"}
    assert work.address(said, "us-west-2") == "1.2.3.4"


def test_who_comes_in_is_the_caller_and_other_members(api, renter):
    made = renter()
    made.launch()
    ways = {
        call.action: call.parameters for call in api.calls if call.action.startswith("Authorize")
    }
    into = ways["AuthorizeSecurityGroupIngress"]
    assert into["IpPermissions.2.IpRanges.1.CidrIp"] == "203.0.113.7/32"
    assert (into["IpPermissions.2.FromPort"], into["IpPermissions.2.ToPort"]) == ("22", "22")
    own = into["IpPermissions.1.Groups.1.GroupId"]
    assert into["IpPermissions.1.IpProtocol"] == "-1"
    out = ways["AuthorizeSecurityGroupEgress"]
    assert out["IpPermissions.1.Groups.1.GroupId"] == own == out["GroupId"] == into["GroupId"]
    assert not [value for value in into.values() if value == "0.0.0.0/0"]


def test_machines_with_efa_stand_side_by_side(api, renter):
    made = renter()
    made.launch(offer(replace(GPU, network_cards=1), zones="b"))
    asked = launches(api)[0].parameters
    assert asked["Placement.GroupName"] == "sky-default-abc-us-east-1b"
    assert asked["NetworkInterface.1.InterfaceType"] == "efa"
    assert asked["NetworkInterface.1.AssociatePublicIpAddress"] == "true"
    assert "NetworkInterface.2.InterfaceType" not in asked
    assert not made.end()
    assert api.left() == {}


@pytest.mark.parametrize(("nodes", "placement"), [(1, "auto"), (2, "no")])
def test_one_machine_stands_where_it_likes(api, renter, nodes, placement):
    made = renter(nodes=nodes, aws=AWSAccess(region="us-east-1", placement=placement))
    made.launch(offer(GPU, zones="b"))
    asked = launches(api)[0].parameters
    assert "Placement.GroupName" not in asked
    assert "NetworkInterface.1.InterfaceType" not in asked


def test_more_machines_are_no_more_calls(api, renter):
    counts = []
    for nodes in (1, 8):
        before = len(api.calls)
        made = renter(f"pool-{nodes}", nodes=nodes)
        made.launch()
        assert not made.end()
        counts.append(len(api.calls) - before)
    assert the(counts)


def test_what_is_asked_for_is_on_disk_before(api, renter, tmp_path):
    api.fail("RunInstances", "UnauthorizedOperation")
    made = renter()
    with pytest.raises(AccountError, match=r"docs/aws-policy\.json"):
        made.launch()
    (found,) = rental_records.entries()
    (attempt,) = found.record.attempts
    assert (attempt.token, attempt.region, attempt.over) == ("sky-default-abc-0", "us-east-1", True)
    assert [each.kind for each in found.record.made] == ["group"]
    assert not made.end()
    assert api.left() == {}


# ── where it goes on ────────────────────────────────────────────────────────────────────


def test_a_zone_that_has_none_leads_to_the_next(api, renter):
    api.capacity("c6i.large", "us-east-1a", 1)
    made = renter(nodes=2)
    assert the(each.zone for each in made.launch()) == "us-east-1b"
    there, here = (f"c6i.large in us-east-1{zone}" for zone in "ab")
    assert f"asking for 2 × {here} (next zone), $0.200 / h" in made.told
    assert made.told[-1].startswith(f"next zone: {here} (not {there}: ")
    assert len({call.parameters["ClientToken"] for call in launches(api)}) == 2


def test_then_the_next_type_and_the_next_region(api, renter):
    for zone in "ab":
        api.capacity("c6i.large", f"us-east-1{zone}", 0)
        api.capacity("c5.large", f"us-east-1{zone}", 0)
    made = renter()
    offers = offer(), offer(OTHER), offer(CPU, "eu-west-1")
    assert the(each.region for each in made.launch(*offers)) == "eu-west-1"
    assert "next type: c5.large in us-east-1a" in made.words()
    assert "next region: c6i.large in eu-west-1a" in made.words()
    assert not made.end()
    assert api.left() == {}


def test_no_spot_leads_to_machines_on_demand(api, renter):
    api.fail("RunInstances", "InsufficientInstanceCapacity", spot=True, times=0)
    made = renter(spot="auto")
    found = made.launch(offer(spot=True), offer())
    assert not found[0].spot
    assert "on demand instead of spot: c6i.large in us-east-1a" in made.words()


def test_spot_machines_end_when_they_are_taken_back(api, renter):
    made = renter(spot="yes")
    assert the(each.spot for each in made.launch(offer(spot=True)))
    asked = launches(api)[0].parameters
    assert asked["InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior"] == "terminate"
    assert asked["InstanceMarketOptions.SpotOptions.SpotInstanceType"] == "one-time"


def test_a_quota_is_named_with_its_code(api, renter):
    api.quota("L-1216C47A", 2)
    made = renter(nodes=2)
    with pytest.raises(LaunchError) as caught:
        made.launch()
    assert (
        "L-1216C47A" in caught.value.message
        and "is 2 vCPUs now, and 4 are needed" in caught.value.message
    )
    assert len(launches(api)) == 1


def test_a_quota_of_one_region_is_not_that_of_another(api, renter):
    api.quota("L-1216C47A", 2, region="us-east-1")
    made = renter(nodes=2)
    assert the(each.region for each in made.launch(offer(), offer(CPU, "eu-west-1"))) == "eu-west-1"


def test_throttled_it_asks_again_with_the_same_token(api, renter):
    api.fail("RunInstances", "RequestLimitExceeded", times=2)
    made = renter()
    made.launch()
    assert the(call.parameters["ClientToken"] for call in launches(api)) == "sky-default-abc-0"
    assert len(launches(api)) == 3
    assert "asking again" in made.words()


def test_an_answer_that_is_lost_costs_no_second_machine(api, renter):
    api.lose("RunInstances")
    made = renter(nodes=2)
    found = made.launch()
    assert len(found) == 2 and len(api.left()["machines"]) == 2
    assert not made.end()
    assert api.left() == {}


def test_machines_that_are_seen_late_are_waited_for(api, renter):
    api.late(2)
    made = renter(nodes=2)
    assert len(made.launch()) == 2


def test_another_zone_has_a_placement_group_of_its_own(api, renter):
    """That of the first one stays there until its machines have ended for good."""
    api.fail("DescribeInstances", "Unsupported")
    made = renter(nodes=2)
    made.launch(offer(GPU))
    groups = [each.parameters["Placement.GroupName"] for each in launches(api)]
    assert groups == ["sky-default-abc-us-east-1a", "sky-default-abc-us-east-1b"]
    assert not made.end()
    assert api.left() == {}


def test_machines_that_are_not_seen_yet_are_ended_all_the_same(api, renter, monkeypatch):
    api.late(3)
    made = renter(nodes=2)
    api.fail("DescribeInstances", "UnauthorizedOperation")
    with pytest.raises(AccountError):
        made.launch()
    assert not made.end()
    assert api.left() == {}


def test_all_that_was_tried_is_told(api, renter):
    api.fail("RunInstances", "InsufficientInstanceCapacity", times=0)
    made = renter()
    with pytest.raises(LaunchError) as caught:
        made.launch(offer(), offer(OTHER))
    assert [what for what, _ in caught.value.tried] == [
        "c6i.large in us-east-1a", "c6i.large in us-east-1b",
        "c5.large in us-east-1a", "c5.large in us-east-1b",
    ]  # fmt: skip
    assert "fewer nodes=" in caught.value.message
    assert "region=us-east-1,us-west-2" in caught.value.message
    assert (
        "  c5.large in us-east-1a, us-east-1b: EC2 cannot provide that many" in caught.value.message
    )


def test_a_group_that_is_not_there_is_told_and_nothing_is_thought_to_be_launched(
    api, renter, monkeypatch
):
    monkeypatch.setattr(launch, "_PAUSE", 0.01)
    api.fail("RunInstances", "InvalidGroup.NotFound", times=0)
    made = renter()
    with pytest.raises(LaunchError) as caught:
        made.launch()
    (why,) = [why for _, why in caught.value.tried]
    assert "InvalidGroup.NotFound" in why and "known to end" not in why
    assert "none is left" in caught.value.message
    assert len(launches(api)) > 1
    assert made.entry.record.attempts[-1].over


def test_what_a_person_has_to_do_first_has_no_other_ways(api, renter):
    api.fail("RunInstances", "PendingVerification")
    with pytest.raises(LaunchError, match="AWS is still verifying the account") as caught:
        renter().launch()
    assert "Other ways" not in caught.value.message


def ends_after(call):
    """The seconds after which machines of a launch end in any case."""
    script = base64.b64decode(call.parameters["UserData"]).decode()
    return int(re.search(rf"{LEASE} \d+ \d+ (\d+) ", script)[1])


def test_what_machines_have_cost_that_came_to_nothing_is_no_longer_there_to_be_spent(api, renter):
    made = renter(nodes=2, max_cost=0.1)
    api.fail("DescribeInstances", "Unsupported")
    made.launch()
    first, second = (ends_after(each) for each in launches(api))
    assert made.work.cost(0.0) == pytest.approx(2 * 0.1 / 60)
    assert first - second == 60
    assert not made.end()


def test_machines_that_cannot_be_ended_are_told_of(api, renter):
    made = renter(nodes=2)
    api.fail("DescribeInstances", "Unsupported")
    api.fail("TerminateInstances", "InvalidParameterValue")
    with pytest.raises(LaunchError) as caught:
        made.launch()
    assert "and not all of c6i.large in us-east-1a is known to end" in caught.value.message
    assert "none is left" not in caught.value.message
    assert len(launches(api)) == 1
    assert not made.end()
    assert api.left() == {}


@pytest.mark.parametrize(
    ("budget", "says"),
    [
        (0.003, r"max_cost=0.003 is spent"),
        (0.0075, r"of max_cost=0.0075 is spent .* the rest is too little"),
    ],
    ids=["all of it", "all but what is of no use"],
)
def test_a_budget_that_is_spent_rents_nothing_more(api, renter, budget, says):
    made = renter(nodes=2, max_cost=budget)
    api.fail("DescribeInstances", "Unsupported")
    with pytest.raises(LaunchError, match=says):
        made.launch()
    assert len(launches(api)) == 1
    assert not made.end()
