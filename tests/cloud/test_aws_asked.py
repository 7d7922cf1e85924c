"""Calls of a launch: what is on disk before each, what it names, and how long until it is asked again."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time

import pytest
from cloud import images
from cloud.renter import GPU, Renter, launches, offer
from cloud.sky import Cloud

from skyward_nb.providers.aws import boot, client, launch, network, rental_records
from skyward_nb.providers.far.login_errors import Unreachable
from skyward_nb.words.errors import AccountError, LaunchError
from skyward_nb.words.offers import InstanceType
from skyward_nb.words.provider_access import AWSAccess

boto3 = pytest.importorskip("boto3", reason="boto3 is not installed")


@pytest.fixture
def renter(api: Cloud):
    return Renter


# ── on disk before ──────────────────────────────────────────────────────────────────────


def test_a_call_that_makes_something_is_on_disk_before_it_is_sent(api, renter, monkeypatch):
    seen = []
    ask = client.AWSClient.ask

    async def looked(self, operation, region, **words):
        if operation in ("RunInstances", "CreateSecurityGroup", "CreatePlacementGroup"):
            # As whoever looks after this process was killed here.
            seen.append((operation, words, rental_records.find("default-abc").record))
        return await ask(self, operation, region, **words)

    monkeypatch.setattr(client.AWSClient, "ask", looked)
    made = renter(nodes=2)
    made.launch(offer(GPU, zones="b"))
    before = {operation: (words, record) for operation, words, record in seen}
    assert len(before) == len(seen) == 3
    words, record = before["RunInstances"]
    assert [each.token for each in record.attempts] == [words["ClientToken"]]
    (attempt,) = record.attempts
    assert (attempt.region, attempt.zone, attempt.type) == ("us-east-1", "us-east-1b", GPU.name)
    assert (attempt.count, attempt.instances, attempt.over) == (2, (), False)
    for operation, kind in (
        ("CreateSecurityGroup", "group"),
        ("CreatePlacementGroup", "placement"),
    ):
        words, record = before[operation]
        assert rental_records.CreatedResource(kind, "us-east-1", words["GroupName"]) in record.made
    assert not made.end()
    assert api.left() == {}


# ── what it names ───────────────────────────────────────────────────────────────────────

_DEEP = "/aws/service/deeplearning/ami/{}/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
_UBUNTU = "/aws/service/canonical/ubuntu/server/24.04/stable/current/{}/hvm/ebs-gp3/ami-id"


@pytest.mark.parametrize(
    ("name", "arch", "gpus", "parameter"),
    [
        ("c6i.large", "x86_64", 0, _UBUNTU.format("amd64")),
        ("m6g.large", "arm64", 0, _UBUNTU.format("arm64")),
        ("g4dn.xlarge", "x86_64", 1, _DEEP.format("x86_64")),
        ("g5g.xlarge", "arm64", 1, _DEEP.format("arm64")),
    ],
)
def test_the_image_is_the_newest_that_a_parameter_names(api, renter, name, arch, gpus, parameter):
    kind = InstanceType(name=name, arch=arch, cpus=4, memory=8, gpus=gpus)
    made = renter(nodes=1)
    made.launch(offer(kind, zones="abcdf"))
    (asked,) = [call for call in api.calls if call.action == "GetParameter"]
    assert (asked.service, asked.parameters["Name"], asked.code) == ("ssm", parameter, "")
    assert launches(api)[-1].parameters["ImageId"] == images.image("us-east-1", parameter)
    assert launches(api)[-1].code == "" and made.machines[0].type == name


@pytest.mark.parametrize("is_public", [False, True])
def test_what_is_ones_own_is_named_and_stays(api, renter, is_public):
    own = boto3.client("ec2", region_name="us-east-1")
    vpc = own.create_vpc(CidrBlock="10.8.0.0/16")["Vpc"]["VpcId"]
    subnet = own.create_subnet(VpcId=vpc, CidrBlock="10.8.1.0/24", AvailabilityZone="us-east-1b")
    subnet = subnet["Subnet"]["SubnetId"]
    own.modify_subnet_attribute(SubnetId=subnet, MapPublicIpOnLaunch={"Value": is_public})
    group = own.create_security_group(GroupName="mine", Description="mine", VpcId=vpc)["GroupId"]
    made = own.register_image(Name="mine", Architecture="x86_64", RootDeviceName="/dev/sda1")
    ami = made["ImageId"]
    before, begun = api.left(), len(api.calls)
    access = AWSAccess(region="us-east-1", subnet=(subnet,), security_group=group, ami=ami)
    made = renter(nodes=2, aws=access)
    for each in made.launch(offer(zones="b")):
        assert each.private.startswith("10.8.1.")
        assert each.address == (each.public if is_public else each.private)
        assert bool(each.public) is is_public
    asked = launches(api)[-1].parameters
    assert asked["ImageId"] == ami
    assert asked["NetworkInterface.1.SubnetId"] == subnet
    assert asked["NetworkInterface.1.SecurityGroupId.1"] == group
    assert made.entry.record.made == ()
    assert not made.end()
    actions = {call.action for call in api.calls[begun:]}
    assert not {each for each in actions if each.startswith(("Create", "Authorize", "Delete"))}
    assert "GetParameter" not in actions
    assert api.left() == before and own.describe_subnets(SubnetIds=[subnet])["Subnets"]


def test_tags_disks_and_reserved_capacity_are_asked_for(api, renter):
    access = AWSAccess(
        region="us-east-1", throughput=1000, reservation="cr-0123456789abcdef0", tags=(("team", "vision"),),
        caller=("10.0.0.0/24",), public_ip=False, jump="ssm",
    )  # fmt: skip
    made = renter(nodes=1, aws=access)
    made.entry.note(tags=access.tags)
    with contextlib.suppress(LaunchError, AccountError):  # nothing is reserved here
        made.launch()
    asked = launches(api)[0].parameters
    assert (
        asked["CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId"]
        == access.reservation
    )
    assert (
        asked["BlockDeviceMapping.1.Ebs.Throughput"],
        asked["BlockDeviceMapping.1.Ebs.Iops"],
    ) == ("1000", "4000")
    assert asked["NetworkInterface.1.AssociatePublicIpAddress"] == "false"
    assert {"team", "vision"} <= {*asked.values()}
    (into,) = [call for call in api.calls if call.action == "AuthorizeSecurityGroupIngress"]
    assert "22" not in into.parameters.values()  # by the Session Manager, no port is open
    assert not made.end()
    assert api.left() == {}


@pytest.mark.parametrize("fields", [{"reservation": "cr-1"}, {"capacity_block": "cr-1"}])
def test_several_machines_of_reserved_capacity_are_in_no_group_of_the_pool(api, renter, fields):
    """What is reserved outside a placement group matches no machine within one."""
    made = renter(nodes=2, aws=AWSAccess(region="us-east-1", **fields))
    with contextlib.suppress(LaunchError, AccountError):  # nothing is reserved here
        made.launch(offer(GPU, zones="b"))
    asked = launches(api)[0].parameters
    assert "cr-1" in asked.values() and "Placement.GroupName" not in asked
    assert "CreatePlacementGroup" not in api.actions()
    assert not made.end()
    assert api.left() == {}


# ── until it is asked again ─────────────────────────────────────────────────────────────


@pytest.fixture
def pauses(monkeypatch):
    """How long is waited from here on, in seconds; it takes none."""
    found = []
    sleep, own = asyncio.sleep, threading.get_ident()

    async def noted(seconds, result=None):
        if threading.get_ident() != own:  # a loop of another test may still go on beside this one
            return await sleep(seconds, result)
        if seconds:
            found.append(seconds)
        return await sleep(0, result)

    monkeypatch.setattr(asyncio, "sleep", noted)
    return found


def test_what_is_throttled_is_asked_again_later_each_time_up_to_a_limit(
    api, renter, pauses, monkeypatch
):
    monkeypatch.setattr(launch.random, "random", lambda: 0.5)
    api.fail("RunInstances", "RequestLimitExceeded", times=0)
    made = renter(nodes=1)
    with pytest.raises(LaunchError, match="RequestLimitExceeded"):
        made.launch(offer(zones="a"))
    assert pauses[:5] == [0.5, 1.0, 2.0, 4.0, 8.0]
    assert len(launches(api)) == 6 and max(pauses) <= 10.0
    (attempt,) = made.entry.record.attempts
    assert attempt.over, "all were refused, so none can come"
    api.calm()
    assert not made.end()


def test_where_an_answer_was_lost_machines_may_come_all_the_same(api, renter, pauses):
    """Also where all that follow are refused; what led to it is said."""
    api.fail("RunInstances", "InternalError")
    api.fail("RunInstances", "RequestLimitExceeded", times=0)
    made = renter(nodes=1)
    with pytest.raises(LaunchError, match=r"RequestLimitExceeded.*is known to end") as raised:
        made.launch(offer(zones="a"))
    assert "none is left" not in raised.value.message
    assert made.entry.record.attempts[0].over is False
    assert made.end().machines


def test_credentials_that_are_over_after_a_lost_answer_hide_no_machine(api, renter, pauses):
    api.late(2)
    api.lose("RunInstances")
    api.fail("RunInstances", "ExpiredToken")
    made = renter(nodes=1)
    with pytest.raises(LaunchError, match=r"aws sso login.*is known to end"):
        made.launch(offer(zones="a"))
    assert api.left()["machines"] and made.end().machines, "it is not seen yet"
    assert not made.end()
    assert api.left() == {}


def test_machines_that_are_seen_late_are_asked_for_less_and_less(api, renter, pauses):
    api.late(12)
    made = renter(nodes=1)
    made.launch()
    assert len(pauses) == 12 == api.actions().count("DescribeInstances") - 1
    assert pauses[:3] == [0.5, 0.75, 1.125]
    assert pauses == sorted(pauses) and pauses[-1] == pauses[-2] == 10.0


def test_a_machine_that_does_not_answer_is_tried_less_and_less(pauses):
    class Line:
        """A line to a machine that answers at last."""

        name, tries = "i-1", 0

        async def connect(self):
            self.tries += 1
            if self.tries < 9:
                raise Unreachable("i-1", "refused")

    line, faults = Line(), {}
    asyncio.run(boot._reach_one(line, time.monotonic() + 600, faults, set()))
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0] and faults == {}


# ── who may come in ─────────────────────────────────────────────────────────────────────


def test_where_nobody_says_who_calls_nothing_is_launched(api, renter, monkeypatch):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv(
            "SKYWARD_CHECKIP_URL", f"http://127.0.0.1:{nobody.getsockname()[1]}/checkip"
        )
        made = renter()
        with pytest.raises(AccountError, match=r"as in SKYWARD_CALLER=1\.2\.3\.4"):
            made.launch()
    assert launches(api) == []
    assert not made.end()
    assert api.left() == {} and not rental_records.entries()


def test_a_group_that_is_there_lets_in_who_comes_from_elsewhere(api, renter):
    """As for a replacement, whose pool has a group with its members' rule and those of earlier addresses."""
    made = renter(nodes=1)
    made.launch()
    own = boto3.client("ec2", region_name="us-east-1")
    (group,) = own.describe_security_groups(
        Filters=[{"Name": "group-name", "Values": ["sky-default-abc"]}]
    )["SecurityGroups"]
    callers = ("203.0.113.7/32", "10.9.0.5/32")
    for _ in range(2):
        asyncio.run(network.group_in(made.cloud, made.entry, "us-east-1", group["VpcId"], callers))
    (group,) = own.describe_security_groups(GroupIds=[group["GroupId"]])["SecurityGroups"]
    ways = [rule for rule in group["IpPermissions"] if rule.get("FromPort") == 22]
    assert {each["CidrIp"] for rule in ways for each in rule["IpRanges"]} == {*callers}
    assert len(group["IpPermissions"]) == 1 + len(ways)
    assert not made.end()


# ── a quota ─────────────────────────────────────────────────────────────────────────────


def test_of_a_quota_of_spot_machines_it_is_asked_what_it_is(api, renter):
    api.quota("L-34B43A08", 0)
    made = renter(nodes=2, spot="yes")
    with pytest.raises(LaunchError) as caught:
        made.launch(offer(spot=True))
    said = caught.value.message
    assert "'All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests' (L-34B43A08)" in said
    assert "of us-east-1 is 0 vCPUs now, and 4 are needed" in said
    assert "--quota-code L-34B43A08 --desired-value 4 --region us-east-1" in said
    (asked,) = [call for call in api.calls if call.action == "GetServiceQuota"]
    assert asked.parameters["QuotaCode"] == "L-34B43A08"
    assert not made.end()
