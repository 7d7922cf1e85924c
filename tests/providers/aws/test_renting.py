"""What goes on around a launch: with machines that are only said to be rented."""

import asyncio

import pytest

from skyward_nb.providers.aws import ledger, renting
from skyward_nb.providers.folders import far_root
from skyward_nb.words.aws import AWSAccess
from skyward_nb.words.events import Step
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
    monkeypatch.setattr(renting.Cloud, "of", lambda access: Account())

    def run(launch):
        monkeypatch.setattr(renting, "_rented", launch)
        spec = PoolSpec(provider="aws", aws=AWSAccess(region="us-east-1"))
        return asyncio.run(renting.rent(spec, "default-abc", [OFFER], told.append))

    told = run.told = []
    return run


def test_a_sweep_that_fails_undoes_no_launch(rent, monkeypatch):
    async def sweep():
        raise KeyError("a profile that was noted just now")

    async def launch(*_):
        return ("a machine",)

    monkeypatch.setattr(renting, "sweep", sweep)
    assert rent(launch) == ("a machine",)
    record = ledger.find("default-abc").record
    assert (record.state, record.listing) == ("up", str(far_root() / "default-abc.json"))
    (step,) = [each for each in rent.told if isinstance(each, Step)]
    assert "a profile that was noted just now" in step.text
