"""What EC2 says can be rented, where, and for how much: asked once, then kept on disk with its date."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from skyward_nb.providers.aws import responses
from skyward_nb.providers.aws.api_errors import NOT_GIVEN, AWSError, spell_fault
from skyward_nb.providers.aws.cache import Cache
from skyward_nb.providers.aws.client import AWSClient
from skyward_nb.providers.aws.offer_selection import RegionStock
from skyward_nb.providers.aws.price_table import shipped_prices
from skyward_nb.words.errors import AccountError
from skyward_nb.words.offers import InstanceType, Price

T = TypeVar("T")
_WEEK = 7 * 86400.0
_DAY = 86400.0
_SOON = 600.0
"""Seconds for which types and zones, list prices, and prices as spot are taken for what they were."""
_WITH_GPUS = ["p*", "g*"]
_PRICES = "us-east-1"
"""Where the price list of all regions is asked for."""
_NO_WAY = {
    *NOT_GIVEN,
    "AuthFailure",
    "Blocked",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidClientTokenId",
    "OptInRequired",
    "PendingVerification",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "Unreachable",
    "UnrecognizedClientException",
}
"""Refusals after which nothing can be rented; after others, what ships with us is gone by."""
_NO_REGION = {"AuthFailure", "Unreachable", "Unreadable"}
"""What comes of asking where there may be nobody."""


class Market:
    """What one account sees; `remarks` gathers what could not be asked.

    Each question raises `AccountError` where the account cannot be used at all.
    """

    def __init__(self, cloud: AWSClient, cache: Cache) -> None:
        self._cloud = cloud
        self._cache = cache
        self.remarks: list[str] = []

    async def types_with_gpus(self, region: str) -> tuple[InstanceType, ...]:
        """All types of a region that have GPUs; none where that cannot be asked."""
        filters = [{"Name": "instance-type", "Values": _WITH_GPUS}]
        return await self._types(region, Filters=filters)

    async def type_named(self, region: str, name: str) -> tuple[InstanceType, ...]:
        """The type of this name, if the region knows it."""
        return await self._types(region, Filters=[{"Name": "instance-type", "Values": [name]}])

    async def all_types(self, region: str) -> tuple[InstanceType, ...]:
        """All types of a region that are not of an older generation, nor whole machines without a host."""
        filters = [
            {"Name": "current-generation", "Values": ["true"]},
            {"Name": "bare-metal", "Values": ["false"]},
        ]
        return await self._types(region, Filters=filters)

    async def _types(self, region: str, **words: Any) -> tuple[InstanceType, ...]:
        asked = ("types", region, words)
        if (kept := self._cache.find(asked, tuple[InstanceType, ...], _WEEK)) is not None:
            return kept[1]
        said = await self._ask("DescribeInstanceTypes", region, **words)
        if said is None:
            return ()
        found = responses.types_of(said.get("InstanceTypes", []))
        self._cache.keep(asked, found)
        return found

    async def stock(self, region: str, types: Sequence[InstanceType], *, spot: bool) -> RegionStock:
        """The zones and prices of some types in a region."""
        names = sorted(each.name for each in types)
        zones, listed, prices = await asyncio.gather(
            self._zones(region, names),
            self._listed(region, names),
            self._spot(region, names) if spot else _nothing(),
        )
        return RegionStock(region=region, zones=zones, listed=listed, spot=prices)

    async def _zones(self, region: str, names: list[str]) -> Mapping[str, tuple[str, ...]] | None:
        asked = ("zones", region, names)
        if (kept := self._cache.find(asked, dict[str, tuple[str, ...]], _WEEK)) is not None:
            return kept[1]
        said = await self._ask(
            "DescribeInstanceTypeOfferings",
            region,
            LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": names}],
        )
        if said is None:
            return None
        found = responses.zones_of(said.get("InstanceTypeOfferings", []))
        self._cache.keep(asked, found)
        return found

    async def _spot(self, region: str, names: list[str]) -> Mapping[str, Mapping[str, Price]]:
        asked = ("spot", region, names)
        if (kept := self._cache.find(asked, dict[str, dict[str, Price]], _SOON)) is not None:
            return kept[1]
        said = await self._ask(
            "DescribeSpotPriceHistory",
            region,
            InstanceTypes=names,
            ProductDescriptions=["Linux/UNIX"],
            StartTime=responses.now(),
        )
        if said is None:
            return {}
        found = responses.spot_prices_of(said.get("SpotPriceHistory", []))
        self._cache.keep(asked, found)
        return found

    async def _listed(self, region: str, names: list[str]) -> Mapping[str, Price]:
        """List prices of AWS, or those that ship with us where it does not tell."""
        shipped = shipped_prices(region)
        of_table = {name: shipped[name] for name in names if name in shipped}
        asked = ("listed", region, names)
        if (kept := self._cache.find(asked, dict[str, Price], _DAY)) is not None:
            return {**of_table, **kept[1]}
        try:
            found = await self._products(region, names)
            if not found and len(names) > 1:  # where several at once are not understood, one by one
                each = [self._products(region, [name]) for name in names]
                found = {
                    name: price
                    for one in await asyncio.gather(*each)
                    for name, price in one.items()
                }
        except AWSError:
            return of_table  # whose date is shown with each price
        if found:
            self._cache.keep(asked, found)
        return {**of_table, **found}

    async def _products(self, region: str, names: list[str]) -> dict[str, Price]:
        """What the price list has of some types; raises `AWSError`."""
        exact = {
            "regionCode": region,
            "operatingSystem": "Linux",
            "tenancy": "Shared",
            "preInstalledSw": "NA",
            "capacitystatus": "Used",
        }
        kind = "TERM_MATCH" if len(names) == 1 else "ANY_OF"
        filters = [{"Type": kind, "Field": "instanceType", "Value": ",".join(names)}]
        filters += [{"Type": "TERM_MATCH", "Field": key, "Value": exact[key]} for key in exact]
        said = await self._cloud.ask(
            "GetProducts",
            _PRICES,
            service="pricing",
            once=True,  # what is not told at once, the table has
            ServiceCode="AmazonEC2",
            Filters=filters,
        )
        return responses.list_prices_of(said.get("PriceList", []))

    async def _ask(self, operation: str, region: str, **words: Any) -> dict[str, Any] | None:
        """The answer, all pages of it; None where AWS does not tell, which is remarked."""
        try:
            return await self._cloud.ask_all(operation, region, **words)
        except AWSError as fault:
            unknown = fault.code in _NO_REGION and self._cloud.unknown_region(region)
            if fault.code in _NO_WAY or unknown:
                raise AccountError(unknown or spell_fault(fault)) from fault
            self.remarks.append(f"AWS answered only in part about {region}: {spell_fault(fault)}")
            return None


async def _nothing() -> Mapping[str, Mapping[str, Price]]:
    return {}
