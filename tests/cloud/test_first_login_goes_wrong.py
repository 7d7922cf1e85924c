"""Machines that run, and are never logged in to: EC2 takes them back, or nothing of them answers."""

from __future__ import annotations

import asyncio

import pytest
from cloud.renter import offer

from skyward_nb.protocol.events import CostChanged, Remark, Step
from skyward_nb.providers.aws import boot, provisioning, rental_records, silence
from skyward_nb.words.errors import HostError, LaunchError
from skyward_nb.words.provider_access import AWSAccess
from skyward_nb.words.spec import PoolSpec

pytestmark = pytest.mark.timeout(200)


def rented(offers, heard):
    """What a launch of one machine makes of these offers; the machine is ended again."""

    async def work():
        spec = PoolSpec(provider="aws", aws=AWSAccess(region="us-east-1"), nodes=1)
        machines = await provisioning.rent(spec, "default-abc", offers, heard)
        record = rental_records.find("default-abc").record
        assert await machines[0].release() == ""
        return record

    return asyncio.run(work())


@pytest.fixture
def no_setup(monkeypatch):
    """Machines are done when they can be logged in to."""

    async def made_ready(spec, lines, tell):
        return [(line, None) for line in lines]

    monkeypatch.setattr(provisioning, "made_ready", made_ready)


def taken_back(cloud, told, *, times=1):
    """Hears what is told, and takes machines back as it is waited for their first login, `times` times."""
    left = [times]

    def heard(what):
        told.append(what)
        if isinstance(what, Step) and what.name == "boot" and left[0]:
            left[0] -= 1
            (instance,) = rental_records.find("default-abc").record.attempts[-1].instances
            cloud.dead(bool(left[0]))
            cloud.ask("reclaim", instance=instance)

    return heard


def test_where_spot_is_taken_back_before_its_login_the_next_offer_is_tried(
    cloud, no_setup, monkeypatch
):
    monkeypatch.setattr(boot, "_LOOK", 0.2)
    cloud.dead()
    told = []
    record = rented([offer(zones="a", spot=True), offer(zones="b")], taken_back(cloud, told))
    first, second = record.attempts
    assert (first.spot, first.over, second.spot) == (True, True, False)
    assert [each.zone for each in record.machines] == ["us-east-1b"]
    assert not {*first.instances} & {each.instance for each in record.machines}
    (said,) = [each.text for each in told if isinstance(each, Remark) and "took" in each.text]
    assert "EC2 took machines back before their first login" in said
    assert "Spot instance termination" in said and said.endswith("the next offer is tried")
    bill = [each.bill for each in told if isinstance(each, CostChanged)][-1]
    assert bill.before > 0 and bill.dollars == 0.1 and bill.began == second.at
    cloud.nothing_left()


def test_where_all_is_taken_back_nothing_is_left(cloud, monkeypatch):
    monkeypatch.setattr(boot, "_LOOK", 0.2)
    cloud.dead()
    told = []
    with pytest.raises(LaunchError, match="EC2 took machines back before their first login"):
        rented([offer(zones="a", spot=True)], taken_back(cloud, told))
    bill = [each.bill for each in told if isinstance(each, CostChanged)][-1]
    assert (bill.dollars, bill.before > 0) == (0.0, True)
    cloud.nothing_left()
    assert rental_records.entries() == []


@pytest.mark.extensive
def test_where_nothing_answers_it_is_said_and_no_more_is_paid(cloud, monkeypatch):
    """Here the network says that nobody has the address, which is no answer of the machine."""
    monkeypatch.setattr(silence, "TOLD_AFTER", 0.1)
    monkeypatch.setattr(silence, "MOST", 0.3)
    monkeypatch.setattr(boot, "_LOOK", 0.2)
    cloud.dead()
    told = []
    with pytest.raises(HostError, match=r"gives no answer; the security group sky-default-abc"):
        rented([offer(zones="a")], told.append)
    notes = [each.text for each in told if isinstance(each, Remark)]
    assert [each for each in notes if "gives no answer" in each and "caller=" in each]
    cloud.nothing_left()
