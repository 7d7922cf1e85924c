"""Pools on machines that are rented: launched, logged in to, used, and gone afterwards."""

from __future__ import annotations

import sys

import pytest
from pools import values

from skyward_nb.providers.aws.provider import AWSProvider
from skyward_nb.words.aws import AWSAccess
from skyward_nb.words.image import Image
from skyward_nb.words.offers import InstanceType, Offer, Price

KIND = InstanceType(name="c6i.large", arch="x86_64", cpus=2, memory=4)
ZONES = ("us-east-1a", "us-east-1b")
OFFER = Offer(
    type=KIND, region="us-east-1", zones=ZONES, price=Price(dollars=0.085, source="a test")
)


@pytest.fixture
def rented(cloud, make, monkeypatch):
    async def offers(self, spec):
        return (OFFER,)

    monkeypatch.setattr(AWSProvider, "offers", offers)

    def make_one(**options):
        return make(**{
            "provider": "aws", "aws": AWSAccess(region="us-east-1"), "nodes": 1,
            "image": Image(interpreter=sys.executable), **options,
        })  # fmt: skip

    return make_one


def test_a_cell_runs_on_machines_that_are_gone_afterwards(cloud, rented):
    pool = rented(nodes=2)
    told = values(
        pool, "import os, socket\n(os.environ['RANK'], os.getuid(), socket.gethostname())"
    )
    assert [(rank, uid) for rank, uid, _ in told] == [("0", 1000), ("1", 1000)]
    assert len({name for *_, name in told}) == 2
    pool.close()
    cloud.nothing_left()
