"""Answers of EC2 and of the price list made our words, and a price list that takes one type at a time."""

import asyncio
import json
from datetime import UTC, datetime

import pytest

from skyward_nb.providers.aws import quoting
from skyward_nb.providers.aws.api_errors import AWSError
from skyward_nb.providers.aws.cache import Cache
from skyward_nb.providers.aws.market import Market
from skyward_nb.providers.aws.price_table import shipped_types
from skyward_nb.providers.aws.responses import (
    list_prices_of,
    spot_prices_of,
    types_of,
    zones_of,
)
from skyward_nb.words.errors import AccountError

TYPES = [each for each in shipped_types() if each.name in ("g6.xlarge", "g6.2xlarge")]


def product(name, dollars, date="2026-11-20T00:00:00Z"):
    price = {"pricePerUnit": {"USD": f"{dollars:.10f}"}}
    return json.dumps(
        {
            "product": {"attributes": {"instanceType": name}},
            "publicationDate": date,
            "terms": {"OnDemand": {"x": {"priceDimensions": {"y": price}}}},
        }
    )


class PriceList:
    """A cloud that knows prices, of one type at a time."""

    def __init__(self):
        self.asked = []

    async def ask(self, operation, region, *, service="ec2", once=False, **words):
        (wanted,) = [each for each in words["Filters"] if each["Field"] == "instanceType"]
        self.asked.append((operation, service, region, wanted["Type"], wanted["Value"]))
        if wanted["Type"] == "ANY_OF":
            return {"PriceList": []}
        return {"PriceList": [product(wanted["Value"], 1.5), product(wanted["Value"], 0)]}

    async def ask_all(self, operation, region, **words):
        return {}


def test_a_price_list_that_takes_one_type_at_a_time_is_asked_so(tmp_path):
    cloud = PriceList()
    market = Market(cloud, Cache("test", tmp_path / "kept"))
    found = asyncio.run(market.stock("eu-west-1", TYPES, spot=False))
    assert {name: price.dollars for name, price in found.listed.items()} == {
        "g6.xlarge": 1.5,
        "g6.2xlarge": 1.5,
    }
    assert found.listed["g6.xlarge"].source == "list price of 2026-11-20"
    assert len(cloud.asked) == 3
    asyncio.run(market.stock("eu-west-1", TYPES, spot=False))
    assert len(cloud.asked) == 3


class Closed(PriceList):
    """A cloud whose regions of Asia are not enabled for the account."""

    async def ask_all(self, operation, region, **words):
        if region.startswith("ap-"):
            raise AWSError(
                "AuthFailure", "not able to validate the provided credentials", operation
            )
        return {}

    def unknown_region(self, region):
        return ""


def test_a_region_that_is_not_enabled_is_left_out_where_others_are(tmp_path):
    market = Market(Closed(), Cache("test", tmp_path / "kept"))

    async def told(*regions):
        asking = [market.stock(each, TYPES, spot=False) for each in regions]
        return await asyncio.gather(*asking, return_exceptions=True)

    (found,) = quoting._open(market, asyncio.run(told("ap-east-1", "us-east-1")))
    assert found.region == "us-east-1"
    (remark,) = market.remarks
    assert remark.startswith("ap-east-1 is left out: AWS refuses it to this account (AuthFailure)")
    with pytest.raises(AccountError, match="or a region that is not enabled for the account"):
        quoting._open(market, asyncio.run(told("ap-east-1", "ap-south-2")))


def test_what_there_is_not_yet_is_asked_for_again(tmp_path):
    """A type is new in a region some day: it was lacking for a week."""
    cloud = PriceList()
    market = Market(cloud, Cache("test", tmp_path / "kept"))
    asyncio.run(market.type_named("us-east-1", "p9.large"))
    assert not [*tmp_path.glob("kept/*")]


def test_what_is_kept_is_kept_for_a_time_and_by_who_asked(tmp_path):
    cache = Cache("mine", tmp_path)
    cache.keep(("prices", 1), {"a": 2.0})
    assert cache.find(("prices", 1), dict[str, float], 60) == {"a": 2.0}
    assert cache.find(("prices", 1), dict[str, float], -1) is None
    assert cache.find(("prices", 2), dict[str, float], 60) is None
    assert cache.find(("prices", 1), list[int], 60) is None
    assert Cache("yours", tmp_path).find(("prices", 1), dict[str, float], 60) is None
    for each in tmp_path.iterdir():
        each.write_text("{")
    assert cache.find(("prices", 1), dict[str, float], 60) is None


def described(name, gpus, arch="x86_64"):
    return {
        "InstanceType": name,
        "VCpuInfo": {"DefaultVCpus": 4},
        "MemoryInfo": {"SizeInMiB": 16384},
        "ProcessorInfo": {"SupportedArchitectures": [arch]},
        **({"GpuInfo": {"Gpus": gpus}} if gpus else {}),
    }


def test_types_have_the_catalogues_names():
    gpu = {"Count": 1, "GpuPartitionSize": 1.0, "MemoryInfo": {"SizeInMiB": 16384}}
    # As EC2 answers, and as it did: https://github.com/aws/aws-cli/issues/9659.
    part = {"Name": "L4", "Manufacturer": "NVIDIA", "Count": 0, "MemoryInfo": {"SizeInMiB": 2861}}
    found = types_of(
        [
            described("a.large", []),
            described("g5g.xlarge", [{**gpu, "Name": "T4g"}], "arm64"),
            described("g7e.2xlarge", [{**gpu, "Name": "RTX PRO Server 6000"}]),
            described("g6f.large", [{**part, "GpuPartitionSize": 0.125, "LogicalGpuCount": 1}]),
            described("g6f.xlarge", [part]),
            described("g9.large", [{**gpu, "Name": "Z900"}]),
        ]
    )
    assert {each.name: each.gpu for each in found} == {
        "a.large": None,
        "g5g.xlarge": "T4G",
        "g7e.2xlarge": "RTX-PRO-6000",
        "g6f.large": "L4",
        "g9.large": "Z900",
    }
    assert found[1].arch == "arm64"
    assert [(each.gpus, each.gpu_part) for each in found] == [
        (0, 1), (1, 1), (1, 1), (1, 0.125), (1, 1),
    ]  # fmt: skip
    assert found[3].gpu_memory == 2.79


def test_prices_and_zones():
    then, now = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, 9, 30, tzinfo=UTC)
    row = {"InstanceType": "g6.xlarge", "AvailabilityZone": "us-east-1a"}
    found = spot_prices_of(
        [
            {**row, "SpotPrice": "0.30", "Timestamp": now},
            {**row, "SpotPrice": "0.10", "Timestamp": then},
        ]
    )
    price = found["g6.xlarge"]["us-east-1a"]
    assert (price.dollars, price.spot) == (0.3, True)
    assert price.source == "spot price of 2026-11-02 09:30 UTC"
    assert list_prices_of([product("a.large", 0), product("b.large", 2)]).keys() == {"b.large"}
    offered = [{"InstanceType": "a.large", "Location": zone} for zone in ("z-1b", "z-1a")]
    assert zones_of(offered) == {"a.large": ("z-1a", "z-1b")}
