"""What machines cost: prices of the list, and what spot machines were let for. The figures are made up.

docs.aws.amazon.com/aws-cost-management/latest/APIReference/API_pricing_GetProducts.html and
docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeSpotPriceHistory.html. They are the same in
every run, differ by type, region and zone, and larger machines cost more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cloud.answers import Answer, said
from cloud.calls import Call

_PAGE = 100
_PUBLISHED = "2026-11-01T00:00:00Z"


@dataclass(frozen=True)
class Size:
    """What there is to pay for: `memory` in GiB."""

    cpus: int
    memory: float
    gpus: int


def _share(*words: str) -> float:
    """From 0 to 1, always the same for the same words."""
    return int(hashlib.sha256(" ".join(words).encode()).hexdigest()[:8], 16) / 0xFFFFFFFF


def on_demand(kind: str, size: Size, region: str) -> float:
    """Dollars an hour."""
    plain = 0.03 * size.cpus + 0.004 * size.memory + 2.0 * size.gpus
    return round(plain * (1 + 0.3 * _share("list", kind, region)), 4)


def spot(kind: str, size: Size, zone: str) -> float:
    """Dollars an hour, as of now."""
    return round(on_demand(kind, size, zone[:-1]) * (0.25 + 0.4 * _share("spot", kind, zone)), 4)


class Prices:
    """`sizes` are the types of a region, `zones` say where each is offered."""

    def __init__(
        self,
        sizes: Callable[[str], dict[str, Size]],
        zones: Callable[[str, str], Iterable[str]],
    ) -> None:
        self._sizes = sizes
        self._zones = zones

    def products(self, call: Call) -> Answer:
        asked = {each["Field"]: each["Value"] for each in call.data.get("Filters", ())}
        region = asked.get("regionCode", "us-east-1")
        if "productFamily" in asked:
            found = [json.dumps(each) for each in _of_disks(asked["productFamily"], region)]
            return said(call, {"FormatVersion": "aws_v1", "PriceList": found})
        sizes = self._sizes(region)
        # A filter of ANY_OF has values with commas between them.
        kinds = asked["instanceType"].split(",") if "instanceType" in asked else sorted(sizes)
        found = [json.dumps(_product(kind, sizes[kind], region)) for kind in kinds if kind in sizes]
        begin = int(call.data.get("NextToken") or 0)
        most = int(call.data.get("MaxResults") or _PAGE)
        more = {"NextToken": str(begin + most)} if begin + most < len(found) else {}
        page = found[begin : begin + most]
        return said(call, {"FormatVersion": "aws_v1", "PriceList": page, **more})

    def history(self, call: Call) -> Answer:
        filters = call.filters()
        kinds = call.several("InstanceType") or filters.get("instance-type", [])
        zone = call.form.get("AvailabilityZone", "")
        wanted = [zone] if zone else filters.get("availability-zone", [])
        systems = call.several("ProductDescription") or filters.get("product-description", [])
        sizes = self._sizes(call.region)
        now = datetime.now(UTC)
        found = [
            {
                "instanceType": kind,
                "productDescription": systems[0] if systems else "Linux/UNIX",
                "spotPrice": f"{spot(kind, sizes[kind], each) * (1 + hours / 100):.6f}",
                "timestamp": f"{now - timedelta(hours=1 + hours):%Y-%m-%dT%H:%M:%S.000Z}",
                "availabilityZone": each,
            }
            for kind in kinds or sorted(sizes)
            if kind in sizes
            for each in self._zones(call.region, kind)
            if not wanted or each in wanted
            for hours in (0, 12)
        ]
        return said(call, {"spotPriceHistorySet": found, "nextToken": ""})


GIGABYTE = 0.08
"""Dollars a month for a GB of gp3."""
SNAPSHOT = 0.05
"""The same, of snapshots; those in the archive cost less, and are another product."""


def _of_disks(family: str, region: str) -> list[dict[str, object]]:
    """Disks by their months: aws.amazon.com/ebs/pricing."""
    kinds = {
        "Storage": [("EBS:VolumeUsage.gp3", GIGABYTE)],
        "Storage Snapshot": [
            ("EBS:SnapshotArchiveStorage", SNAPSHOT / 4),
            ("USE1-EBS:SnapshotUsage", SNAPSHOT),
        ],
    }
    return [
        {
            "product": {
                "productFamily": family,
                "attributes": {"regionCode": region, "usagetype": usage},
            },
            "terms": {
                "OnDemand": {
                    "1": {
                        "priceDimensions": {
                            "1": {"unit": "GB-Mo", "pricePerUnit": {"USD": f"{dollars:.10f}"}}
                        }
                    }
                }
            },
        }
        for usage, dollars in kinds.get(family, [])
    ]


def _product(kind: str, size: Size, region: str) -> dict[str, object]:
    sku = hashlib.sha256(f"{kind} {region}".encode()).hexdigest()[:16].upper()
    price = {
        "unit": "Hrs",
        "pricePerUnit": {"USD": f"{on_demand(kind, size, region):.10f}"},
        "description": f"On Demand Linux {kind} Instance Hour",
        "beginRange": "0",
        "endRange": "Inf",
        "rateCode": f"{sku}.JRTCKXETXF.6YS6EN2CT7",
        "appliesTo": [],
    }
    term = {
        "sku": sku,
        "offerTermCode": "JRTCKXETXF",
        "effectiveDate": _PUBLISHED,
        "termAttributes": {},
        "priceDimensions": {price["rateCode"]: price},
    }
    return {
        "serviceCode": "AmazonEC2",
        "version": "20261101000000",
        "publicationDate": _PUBLISHED,
        "product": {
            "sku": sku,
            "productFamily": "Compute Instance",
            "attributes": {
                "servicecode": "AmazonEC2",
                "instanceType": kind,
                "regionCode": region,
                "operatingSystem": "Linux",
                "tenancy": "Shared",
                "preInstalledSw": "NA",
                "capacitystatus": "Used",
                "licenseModel": "No License required",
                "marketoption": "OnDemand",
                "vcpu": str(size.cpus),
                "memory": f"{size.memory:g} GiB",
                "gpu": str(size.gpus),
            },
        },
        "terms": {"OnDemand": {f"{sku}.JRTCKXETXF": term}},
    }
