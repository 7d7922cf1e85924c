"""Answers of EC2 and the price list as types, zones and prices. Pure.

Answers are those of https://docs.aws.amazon.com/AWSEC2/latest/APIReference (DescribeInstanceTypes,
DescribeInstanceTypeOfferings, DescribeSpotPriceHistory), and of GetProducts in
https://docs.aws.amazon.com/aws-cost-management/latest/APIReference.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from skyward_nb.providers.aws.client import Answer
from skyward_nb.words.catalogue import canonical, kind_of
from skyward_nb.words.errors import OptionError
from skyward_nb.words.offers import InstanceType, Price

_MIB = 1024


def types_of(answers: Iterable[Mapping[str, Any]]) -> tuple[InstanceType, ...]:
    """Types as described, without those that have several kinds of GPUs, or GPUs that EC2 does not count.

    Of parts of GPUs it counts none, but `LogicalGpuCount`: https://github.com/aws/aws-cli/issues/9659.
    """
    found = (_type_of(each) for each in answers)
    return tuple(each for each in found if each is not None)


def _type_of(said: Mapping[str, Any]) -> InstanceType | None:
    gpus = said.get("GpuInfo", {}).get("Gpus", [])
    gpu = gpus[0] if gpus else {}
    count = gpu.get("Count") or ("GpuPartitionSize" in gpu and gpu.get("LogicalGpuCount")) or 0
    if len(gpus) > 1 or (gpus and not count):
        return None
    name = _gpu_name(gpu["Name"]) if gpu else None
    network = said.get("NetworkInfo", {})
    archs = said.get("ProcessorInfo", {}).get("SupportedArchitectures", [])
    return InstanceType(
        name=said["InstanceType"],
        arch="arm64" if "arm64" in archs else "x86_64",
        cpus=said["VCpuInfo"]["DefaultVCpus"],
        memory=round(said["MemoryInfo"]["SizeInMiB"] / _MIB, 2),
        gpu=name,
        gpus=count,
        gpu_part=gpu.get("GpuPartitionSize", 1.0),
        gpu_memory=round(gpu.get("MemoryInfo", {}).get("SizeInMiB", 0) / _MIB, 2),
        efa=network.get("EfaSupported", False),
        network_cards=network.get("MaximumNetworkCards", 1),
        nvme=said.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0),
    )


def _gpu_name(said: str) -> str:
    """The catalogue's name of what EC2 calls `T4g` or `RTX PRO Server 6000`."""
    name = said.replace(" Server ", " ")
    kind = kind_of(name)
    if kind is not None:
        return kind.name
    try:
        return canonical(name)
    except OptionError:  # EC2's own name, which only resembles a known one
        return name.replace(" ", "-")


def zones_of(answers: Iterable[Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    """By type, the zones that offer it."""
    found: dict[str, set[str]] = {}
    for each in answers:
        found.setdefault(each["InstanceType"], set()).add(each["Location"])
    return {name: tuple(sorted(zones)) for name, zones in found.items()}


def spot_prices_of(answers: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Price]]:
    """By type and zone, the latest spot price."""
    latest: dict[tuple[str, str], tuple[datetime, float]] = {}
    for each in answers:
        key, at = (each["InstanceType"], each["AvailabilityZone"]), each["Timestamp"]
        if key not in latest or latest[key][0] < at:
            latest[key] = at, float(each["SpotPrice"])
    found: dict[str, dict[str, Price]] = {}
    for (name, zone), (at, dollars) in latest.items():
        source = f"spot price of {at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        found.setdefault(name, {})[zone] = Price(dollars=dollars, source=source, spot=True)
    return found


def list_prices_of(answers: Iterable[str]) -> dict[str, Price]:
    """By type, the price of an hour on demand, from products of GetProducts; free ones are left out."""
    found: dict[str, Price] = {}
    for text in answers:
        product = json.loads(text)
        name = product.get("product", {}).get("attributes", {}).get("instanceType")
        date = product.get("publicationDate", "")[:10]
        for dollars in dollars_of(product):
            if name:
                source = f"list price of {date}" if date else "list price"
                found[name] = Price(dollars=dollars, source=source)
    return found


def dollars_of(product: Answer) -> Iterator[float]:
    """The prices on demand of a product of GetProducts; free ones are left out."""
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term.get("priceDimensions", {}).values():
            dollars = float(dimension.get("pricePerUnit", {}).get("USD", 0))
            if dollars > 0:
                yield dollars
