"""What goes on around a launch: with machines that are only said to be rented."""

import asyncio

import pytest

from skyward_nb.protocol.events import Remark
from skyward_nb.providers.aws import provisioning, rental_records
from skyward_nb.providers.aws import sweep as sweeping
from skyward_nb.providers.folders import far_root
from skyward_nb.words.aws_access import AWSAccess
from skyward_nb.words.errors import NothingFits
from skyward_nb.words.offers import InstanceType, Offer, Price
from skyward_nb.words.spec import PoolSpec

KIND = InstanceType(name="c6i.large", arch="x86_64", cpus=2, memory=4)
OFFER = Offer(type=KIND, region="us-east-1", price=Price(dollars=0.1, source="a test"))


class Account:
    """A cloud that says whose credentials these are, and nothing else."""

    async def account(self, region):
        return "123456789012"


@pytest.fixture
def rent(tmp_path, monkeypatch):
    """Rents a pool for which `launch` gives machines; the pool's steps are told to it."""
    monkeypatch.setenv("SKYWARD_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(provisioning.AWSClient, "of", lambda access: Account())

    def run(launch, offers=(), **fields):
        monkeypatch.setattr(provisioning, "_rented", launch)
        spec = PoolSpec(provider="aws", aws=AWSAccess(region="us-east-1"), **fields)
        return asyncio.run(provisioning.rent(spec, "default-abc", offers or [OFFER], told.append))

    told = run.told = []
    return run


def test_a_sweep_that_fails_undoes_no_launch(rent, monkeypatch):
    async def sweep():
        raise KeyError("a profile that was noted just now")

    async def launch(*_):
        return ("a machine",)

    monkeypatch.setattr(provisioning, "sweep", sweep)
    assert rent(launch) == ("a machine",)
    record = rental_records.find("default-abc").record
    assert (record.state, record.listing) == ("up", str(far_root() / "default-abc.json"))
    (note,) = [each for each in rent.told if isinstance(each, Remark)]
    assert "a profile that was noted just now" in note.text


def test_a_budget_that_is_gone_before_machines_are_of_use_rents_none(rent, monkeypatch):
    tried = []

    async def launch(spec, cloud, entry, offers, tell):
        tried.extend(offers)
        return ("a machine",)

    async def sweep():
        return sweeping.SweepReport()

    monkeypatch.setattr(provisioning, "sweep", sweep)
    dear = Offer(type=KIND, region="us-east-1", price=Price(dollars=27.0, source="a test"))
    with pytest.raises(NothingFits, match=r"max_cost=0.5 is spent in 67 s by 1 × c6i.large"):
        rent(launch, [dear], max_cost=0.5)
    assert not tried and rental_records.find("default-abc") is None
    assert rent(launch, [dear, OFFER], max_cost=0.5)
    assert tried == [OFFER]
