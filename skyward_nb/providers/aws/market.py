"""Types, zones and prices of EC2: asked once, then kept on disk with their date."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from skyward_nb.providers.aws import responses
from skyward_nb.providers.aws.api_errors import BAD_CREDENTIALS, AWSError, spell_fault
from skyward_nb.providers.aws.cache import Cache
from skyward_nb.providers.aws.client import Answer, AWSClient
from skyward_nb.providers.aws.offer_selection import RegionStock
from skyward_nb.providers.aws.price_table import shipped_prices
from skyward_nb.words.errors import AccountError
from skyward_nb.words.offers import InstanceType, Price

T = TypeVar("T")
_WEEK = 7 * 86400.0
_DAY = 86400.0
_SOON = 600.0
"""Seconds for which types and zones, list prices, and spot prices are kept."""
_WITH_GPUS = ["p*", "g*"]
_PRICES = "us-east-1"
"""The region of the service with the price list of all regions."""
_NO_WAY = {
    *BAD_CREDENTIALS,
    "Blocked",
    "OptInRequired",
    "PendingVerification",
    "Unreachable",
    "UnrecognizedClientException",
}
"""Refusals after which nothing can be rented; after others, the shipped table is used."""
_CLOSED = {"AuthFailure", "OptInRequired"}
"""What EC2 answers to keys that are no good, and to an account for which the region is not enabled."""
_NO_REGION = {"AuthFailure", "Unreachable", "Unreadable"}
"""Errors of regions that may not exist."""


class RegionClosed(AccountError):
    """AWS refuses a `region` to the account, or it refuses the account everywhere."""

    def __init__(self, region: str, fault: AWSError) -> None:
        self.remark: str = (
            f"{region} is left out: AWS refuses it to this account ({fault.code}). Its owner can enable regions in "
            "AWS's console"
        )
        super().__init__(spell_fault(fault))


class Market:
    """The market of one account; `remarks` collects failed questions.

    Each method raises `AccountError` if the account cannot be used at all.
    """

    def __init__(self, cloud: AWSClient, cache: Cache) -> None:
        self._cloud = cloud
        self._cache = cache
        self.remarks: list[str] = []

    async def types_with_gpus(self, region: str) -> tuple[InstanceType, ...]:
        """All types of a region that have GPUs; none if EC2 does not say."""
        filters = [{"Name": "instance-type", "Values": _WITH_GPUS}]
        return await self._types(region, Filters=filters)

    async def type_named(self, region: str, name: str) -> tuple[InstanceType, ...]:
        """The type of this name, if the region knows it."""
        return await self._types(region, Filters=[{"Name": "instance-type", "Values": [name]}])

    async def all_types(self, region: str) -> tuple[InstanceType, ...]:
        """All types of a region of the current generation, without bare metal."""
        filters = [
            {"Name": "current-generation", "Values": ["true"]},
            {"Name": "bare-metal", "Values": ["false"]},
        ]
        return await self._types(region, Filters=filters)

    async def _types(self, region: str, **words: Any) -> tuple[InstanceType, ...]:
        found = await self._known(
            ("types", region, words),
            _WEEK,
            tuple[InstanceType, ...],
            lambda said: responses.types_of(said.get("InstanceTypes", [])),
            "DescribeInstanceTypes",
            **words,
        )
        return found or ()

    async def stock(self, region: str, types: Sequence[InstanceType], *, spot: bool) -> RegionStock:
        """The zones and prices of some types in a region."""
        names = sorted(each.name for each in types)
        zones, listed, prices = await asyncio.gather(
            self._zones(region, names),
            self._listed(region, names),
            self._spot(region, names if spot else []),
        )
        return RegionStock(region=region, zones=zones, listed=listed, spot=prices)

    async def _zones(self, region: str, names: list[str]) -> Mapping[str, tuple[str, ...]] | None:
        return await self._known(
            ("zones", region, names),
            _WEEK,
            dict[str, tuple[str, ...]],
            lambda said: responses.zones_of(said.get("InstanceTypeOfferings", [])),
            "DescribeInstanceTypeOfferings",
            LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": names}],
        )

    async def _spot(self, region: str, names: list[str]) -> Mapping[str, Mapping[str, Price]]:
        if not names:
            return {}
        found = await self._known(
            ("spot", region, names),
            _SOON,
            dict[str, dict[str, Price]],
            lambda said: responses.spot_prices_of(said.get("SpotPriceHistory", [])),
            "DescribeSpotPriceHistory",
            InstanceTypes=names,
            ProductDescriptions=["Linux/UNIX"],
            StartTime=datetime.now(UTC),  # EC2 gives the prices that hold then
        )
        return found or {}

    async def _listed(self, region: str, names: list[str]) -> Mapping[str, Price]:
        """List prices of AWS, or those of the shipped table if AWS does not say."""
        shipped = shipped_prices(region)
        of_table = {name: shipped[name] for name in names if name in shipped}
        asked = ("listed", region, names)
        if (kept := self._cache.find(asked, dict[str, Price], _DAY)) is not None:
            return {**of_table, **kept}
        try:
            found = await self._products(region, names)
            if not found and len(names) > 1:  # some servers answer about one type at a time
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
        """Prices of some types in the price list; raises `AWSError`."""
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
            once=True,  # on an error the table is used
            ServiceCode="AmazonEC2",
            Filters=filters,
        )
        return responses.list_prices_of(said.get("PriceList", []))

    async def _known(
        self,
        asked: tuple[str, str, object],
        within: float,
        kind: type[T],
        read: Callable[[Answer], T],
        operation: str,
        **words: Any,
    ) -> T | None:
        """The kept answer about (subject, region, details), or AWS's answer now; None if there is none."""
        known = self._cache.find(asked, kind, within)
        if known is None and (said := await self._ask(operation, asked[1], **words)) is not None:
            known = read(said)
            if known:  # what it lacks today may be there tomorrow
                self._cache.keep(asked, known)
        return known

    async def _ask(self, operation: str, region: str, **words: Any) -> Answer | None:
        """The answer, all pages of it; None and a remark if AWS does not say."""
        try:
            return await self._cloud.ask_all(operation, region, **words)
        except AWSError as fault:
            unknown = fault.code in _NO_REGION and self._cloud.unknown_region(region)
            if fault.code in _CLOSED and not unknown:
                raise RegionClosed(region, fault) from fault
            if fault.code in _NO_WAY or unknown:
                raise AccountError(unknown or spell_fault(fault)) from fault
            self.remarks.append(f"AWS answered only in part about {region}: {spell_fault(fault)}")
            return None
