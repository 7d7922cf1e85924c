"""One offer of machines, and pools of machines of it."""

from __future__ import annotations

import asyncio
import sys

from skyward_nb.pool.pool import Pool
from skyward_nb.providers.aws import sweep
from skyward_nb.providers.provider_table import PROVIDERS
from skyward_nb.words.image import Image
from skyward_nb.words.offers import InstanceType, Offer, Price, Quote
from skyward_nb.words.provider_access import AWSAccess
from skyward_nb.words.spec import PoolSpec

KIND = InstanceType(name="c6i.large", arch="x86_64", cpus=2, memory=4)
ZONES = ("us-east-1a", "us-east-1b")
OFFER = Offer(
    type=KIND, region="us-east-1", zones=ZONES, price=Price(dollars=0.085, source="a test")
)


async def quote_of(spec):
    return Quote(nodes=spec.nodes, offers=(OFFER,))


def wanted(**options):
    return {
        "provider": "aws", "aws": AWSAccess(region="us-east-1"), "nodes": 1,
        "image": Image(interpreter=sys.executable), **options,
    }  # fmt: skip


def started(watch=lambda _: None, **options):
    spec = PoolSpec(**wanted(**options))
    pool = Pool(spec, PROVIDERS["aws"](), lambda _: None)
    pool.start(watch)
    return pool


def swept():
    return asyncio.run(sweep.sweep())
