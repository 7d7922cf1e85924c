"""How a machine is reached from wherever this side is, with a cloud that notes what it is asked."""

import asyncio
import time

import pytest

from skyward_nb.providers.aws import rental_records
from skyward_nb.providers.aws.api_errors import AWSError
from skyward_nb.providers.aws.aws_machine import AWSMachine, Rental
from skyward_nb.providers.aws.rental_records import (
    CreatedResource,
    LaunchAttempt,
    MakerProcess,
    RentalFolder,
    RentalRecord,
    RunningInstance,
)
from skyward_nb.providers.far.far_machine import FarMachine


class Line:
    name = "i-0"
    stream = None


class Groups:
    """A cloud with the pool's group, which lets these addresses in; the machine is none of those who ask."""

    def __init__(self, *lets_in):
        self.lets_in = set(lets_in)
        self.asked = []

    async def ask_all(self, operation, region, **words):
        return {"Reservations": []}

    async def ask(self, operation, region, **words):
        self.asked.append(operation)
        if operation == "DescribeSecurityGroups":
            return {"SecurityGroups": [{"GroupId": "sg-1"}]}
        assert operation == "AuthorizeSecurityGroupIngress"
        rules = words["IpPermissions"]
        assert {(rule["FromPort"], rule["ToPort"]) for rule in rules} == {(22, 22)}
        addresses = {each["CidrIp"] for rule in rules for each in rule["IpRanges"]}
        # All or none, as EC2 does.
        if addresses & self.lets_in:
            raise AWSError("InvalidPermission.Duplicate", "", operation)
        self.lets_in |= addresses
        return {}


@pytest.fixture
def pool(tmp_path, monkeypatch):
    """A machine of a pool that is up: whoever comes from an address that is not let in gets nowhere."""
    monkeypatch.setenv("SKYWARD_STATE_DIR", str(tmp_path / "state"))
    entry = RentalFolder.begin(
        RentalRecord(
            pool_id="default-abc", name="default", owner=rental_records.owner(), maker=MakerProcess.this(),
            created=time.time(), state="up",
        )
    )  # fmt: skip
    entry.attempt(LaunchAttempt(token="t", region="us-east-1", zone="us-east-1a", type="c6i.large"))
    entry.make(CreatedResource("group", "us-east-1", "sky-default-abc"))
    cloud = Groups("198.51.100.1/32")

    async def opened(self, name, opening):
        tried.append(here[0])
        if here[0] not in cloud.lets_in:
            raise OSError("no way there")
        return "a stream"

    async def caller_networks(*_):
        return (here[0],)

    here, tried = ["198.51.100.1/32"], []
    monkeypatch.setattr(FarMachine, "_opened", opened)
    monkeypatch.setattr("skyward_nb.providers.aws.aws_machine.callers_for", caller_networks)
    return entry, cloud, here, tried


def connected(cloud, count=1):
    async def connect():
        rental = Rental(cloud, "default-abc")
        machines = [AWSMachine("default", f"f{n}", n, Line(), rental) for n in range(count)]
        try:
            return await asyncio.gather(*(each.connect() for each in machines))
        finally:
            for each in machines:
                each._store.close()

    return asyncio.run(connect())


@pytest.mark.parametrize(
    ("age", "account", "has_ended"),
    [(7200.0, "1", True), (60.0, "1", False), (7200.0, "2", False)],
    ids=["old", "new: EC2 may list it late", "asked with credentials of another account"],
)
def test_what_ec2_lists_no_more_has_ended(tmp_path, monkeypatch, age, account, has_ended):
    """As of a pool that ended while a computer slept."""
    monkeypatch.setenv("SKYWARD_STATE_DIR", str(tmp_path / "state"))
    began = time.time() - age
    machine = RunningInstance(
        instance="i-0", region="us-east-1", zone="us-east-1a", type="c6i.large", private="10.0.0.1", host_key="",
    )  # fmt: skip
    RentalFolder.begin(
        RentalRecord(
            pool_id="default-abc", name="default", owner=rental_records.owner(), maker=MakerProcess.this(),
            created=began, state="up", account="1", machines=(machine,),
            attempts=(
                LaunchAttempt(
                    token="t", region="us-east-1", zone="us-east-1a", type="c6i.large", at=began, instances=("i-0",)
                ),
            ),
        )
    )  # fmt: skip
    cloud = Groups()

    async def of_these_credentials(region):
        return account

    monkeypatch.setattr(cloud, "account", of_these_credentials, raising=False)
    why = asyncio.run(Rental(cloud, "default-abc").end_of("i-0"))
    assert why == ("EC2 lists it no more, so it ended over an hour ago" if has_ended else "")


def test_who_comes_from_where_it_was_rented_asks_nobody(pool):
    _, cloud, _, _ = pool
    assert connected(cloud) == ["a stream"]
    assert cloud.asked == []


def test_who_comes_from_elsewhere_is_let_in(pool):
    _, cloud, here, tried = pool
    here[0] = "203.0.113.7/32"
    assert connected(cloud, count=3) == ["a stream"] * 3
    assert cloud.asked == ["DescribeSecurityGroups", "AuthorizeSecurityGroupIngress"]
    assert len(tried) == 6


@pytest.mark.parametrize("order", [1, -1])
def test_who_comes_from_a_new_address_of_two_is_let_in(pool, monkeypatch, order):
    """A VPN gives a new address, and the public one stays, or the other way round."""
    _, cloud, here, tried = pool
    new, old = "203.0.113.7/32", "198.51.100.1/32"

    async def both(*_):
        return (new, old)[::order]

    monkeypatch.setattr("skyward_nb.providers.aws.aws_machine.callers_for", both)
    here[0] = new
    assert connected(cloud) == ["a stream"]
    assert cloud.lets_in == {new, old} and len(tried) == 2
    assert cloud.asked.count("AuthorizeSecurityGroupIngress") == 3


def test_a_machine_that_is_away_for_another_reason_stays_away(pool, monkeypatch):
    _, cloud, here, tried = pool

    async def opened(self, name, opening):
        tried.append(here[0])
        raise OSError("it does not answer")

    monkeypatch.setattr(FarMachine, "_opened", opened)
    with pytest.raises(OSError, match="it does not answer"):
        connected(cloud)
    assert len(tried) == 1


def test_a_group_of_ones_own_is_left_alone(pool):
    entry, cloud, here, _ = pool
    entry.note(made=())
    here[0] = "203.0.113.7/32"
    with pytest.raises(OSError, match="no way there"):
        connected(cloud)
    assert cloud.asked == []
