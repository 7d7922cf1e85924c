"""What disks cost, from AWS's price list; nothing where it does not say."""

from __future__ import annotations

import json

from skyward_nb.providers.aws.api_errors import AWSError
from skyward_nb.providers.aws.client import AWSClient
from skyward_nb.providers.aws.responses import dollars_of

_PRICES = "us-east-1"
"""The region of the service with the price list of all regions."""
_HOURS = 730.0
"""Hours of a month, as AWS counts."""


async def hourly(cloud: AWSClient, region: str, gigabytes: int) -> float | None:
    """Dollars an hour of so many GB of gp3, at its own throughput; None if AWS does not say."""
    found = await _of(cloud, region, productFamily="Storage", volumeApiName="gp3")
    return None if found is None else found * gigabytes / _HOURS


async def monthly_of_snapshots(cloud: AWSClient, region: str) -> float | None:
    """Dollars a month of one GB of snapshots, in their standard tier; None if AWS does not say."""
    return await _of(
        cloud, region, productFamily="Storage Snapshot", ending="EBS:SnapshotUsage"
    )  # fmt: skip


async def _of(cloud: AWSClient, region: str, *, ending: str = "", **wanted: str) -> float | None:
    """Dollars a month of one GB, of the first product whose kind of usage has this ending."""
    fields = {"regionCode": region, **wanted}
    filters = [{"Type": "TERM_MATCH", "Field": key, "Value": fields[key]} for key in fields]
    try:
        said = await cloud.ask(
            "GetProducts", _PRICES, service="pricing", once=True, ServiceCode="AmazonEC2", Filters=filters
        )  # fmt: skip
    except AWSError:
        return None
    products = map(json.loads, said.get("PriceList", []))
    fitting = (
        each
        for each in products
        if str(each["product"]["attributes"].get("usagetype", "")).endswith(ending)
    )
    return next((dollars for each in fitting for dollars in dollars_of(each)), None)
