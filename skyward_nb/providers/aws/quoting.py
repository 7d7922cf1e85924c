"""Turns a spec into a `Quote`: machines that fit, and their prices. A launch takes its offers from it."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec

from skyward_nb.providers.aws.api_errors import AWSError, spell_fault
from skyward_nb.providers.aws.cache import Cache
from skyward_nb.providers.aws.client import AWSClient
from skyward_nb.providers.aws.market import Market, RegionClosed
from skyward_nb.providers.aws.network_cards import card_remarks
from skyward_nb.providers.aws.offer_selection import RegionStock, fitting, offers
from skyward_nb.providers.aws.price_table import (
    shipped_prices,
    shipped_regions,
    shipped_types,
    usual_prices,
)
from skyward_nb.words.errors import AccountError, NothingFits
from skyward_nb.words.offers import Arch, InstanceType, Quote
from skyward_nb.words.provider_access import AWSAccess
from skyward_nb.words.spec import PoolSpec

_HOLDS = 900.0
"""Seconds for which a quote holds, so that a launch has the price that was agreed to."""
_OF_QUOTES = (
    "aws", "accelerator", "mig", "partition", "ranks_per_node", "simulate", "cpus", "memory", "spot", "nodes",
    "max_hourly_cost",
)  # fmt: skip
"""What of a pool's spec its quote depends on."""
_quotes: dict[bytes, tuple[float, Quote]] = {}
"""What AWS was asked, and when."""
_agreed: dict[bytes, tuple[float, Quote]] = {}
"""What was agreed to, and when."""


async def quote_of(spec: PoolSpec) -> Quote:
    """The offers for the nodes of this pool, in the order in which they are tried.

    Raises `AccountError` if AWS cannot be asked, `NothingFits` if there is no such machine.
    """
    key = _key(spec)
    at, quote = _quotes.get(key, (0.0, None))
    if quote is None or time.monotonic() - at > _HOLDS:
        try:
            quote = await _asked(spec)
        except RegionClosed as closed:
            raise AccountError(closed.message) from closed
        _quotes[key] = time.monotonic(), quote
    return quote


async def launch_quote(spec: PoolSpec) -> Quote:
    """The quote that was agreed to for this pool just now, if one was; else `quote_of`, which also says what is raised."""
    at, quote = _agreed.get(_key(spec, "max_cost"), (0.0, None))
    if quote is None or time.monotonic() - at > _HOLDS:
        return await quote_of(spec)
    return quote


def hold(spec: PoolSpec, quote: Quote) -> None:
    """Have the next launch of this pool go by a quote that was agreed to now. Later quotes are asked for anew in their time."""
    _agreed[_key(spec, "max_cost")] = time.monotonic(), quote


def _key(spec: PoolSpec, *more: str) -> bytes:
    return msgspec.json.encode([getattr(spec, name) for name in (*_OF_QUOTES, *more)])


def offline_quote(spec: PoolSpec, region: str) -> Quote:
    """A quote by the shipped table alone: without zones, with its list prices."""
    fit = fitting(spec, shipped_types(), usual_prices(), _arch())
    regions = _regions(spec.aws or AWSAccess(), region)
    stocks = [RegionStock(region=r, zones=None, listed=shipped_prices(r), spot={}) for r in regions]
    return Quote(nodes=spec.nodes, offers=offers(spec, fit.types, stocks), remarks=fit.remarks)


def forget() -> None:
    """Forget all quotes."""
    _quotes.clear()
    _agreed.clear()


def region_of(access: AWSAccess) -> str:
    """The requested region, or else that of AWS's own configuration; raises `AccountError`."""
    if access.region is not None:
        return access.region
    try:
        found = AWSClient.of(access).region()
    except AWSError as fault:
        raise AccountError(spell_fault(fault)) from fault
    if found is None:
        raise AccountError("no region is set: write region=us-east-1, or run `aws configure`")
    return found


async def _asked(spec: PoolSpec) -> Quote:
    access = spec.aws or AWSAccess()
    cloud = AWSClient.of(access)
    region = await asyncio.to_thread(region_of, access)
    profile = access.profile or os.environ.get("AWS_PROFILE", "")
    endpoint = access.endpoint or os.environ.get("AWS_ENDPOINT_URL", "")
    # Keys in variables may be of any account, and zones have other names in each.
    key = "" if access.profile else os.environ.get("AWS_ACCESS_KEY_ID", "")
    market = Market(cloud, Cache("@".join(filter(None, (profile, endpoint, key)))))
    wanted = _regions(access, region)
    types = await _open_first(market, wanted, partial(_types, spec, market))
    try:
        fit = fitting(spec, types, usual_prices(), _arch())
    except NothingFits:
        if spec.accelerator is not None or access.instance_type is not None:
            raise
        more = _united(types, await _open_first(market, wanted, market.all_types))
        fit = fitting(spec, more, usual_prices(), _arch())
    is_spot = spec.spot != "no"
    asking = [market.stock(each, fit.types, spot=is_spot) for each in wanted]
    stocks = _open(market, await asyncio.gather(*asking, return_exceptions=True))
    try:
        found = offers(
            spec,
            fit.types,
            stocks,
            lambda name: tuple(each for each in shipped_regions(name) if each not in wanted),
        )
    except NothingFits as nothing:
        for each in dict.fromkeys(market.remarks):
            nothing.add_note(each)
        raise
    kinds = {each.type.name: each.type for each in found}
    remarks = (*fit.remarks, *card_remarks(spec, kinds.values()), *dict.fromkeys(market.remarks))
    return Quote(nodes=spec.nodes, offers=found, remarks=remarks)


async def _open_first(
    market: Market,
    regions: Sequence[str],
    ask: Callable[[str], Awaitable[tuple[InstanceType, ...]]],
) -> tuple[InstanceType, ...]:
    """What the first of these regions says that the account may use."""
    closed: RegionClosed | None = None
    for region in regions:
        try:
            return await ask(region)
        except RegionClosed as error:
            closed = error
            market.remarks.append(error.remark)
    assert closed is not None
    raise closed


def _open(market: Market, told: Sequence[RegionStock | BaseException]) -> list[RegionStock]:
    """Those of the regions that the account may use; others are remarked on. Raises what none, or any, may be asked for."""
    found = [each for each in told if isinstance(each, RegionStock)]
    for each in told:
        if isinstance(each, RegionClosed) and found:
            market.remarks.append(each.remark)
        elif isinstance(each, BaseException):
            raise each
    return found


async def _types(spec: PoolSpec, market: Market, region: str) -> tuple[InstanceType, ...]:
    """The types to choose from: those of the shipped table, and newer ones if need be."""
    known = shipped_types()
    name = spec.aws.instance_type if spec.aws else None
    if name is not None:
        is_known = any(each.name == name for each in known)
        return known if is_known else _united(known, await market.type_named(region, name))
    if spec.real_accelerator is not None:
        return _united(known, await market.types_with_gpus(region))
    return known


def _united(
    known: tuple[InstanceType, ...], more: tuple[InstanceType, ...]
) -> tuple[InstanceType, ...]:
    return tuple({each.name: each for each in (*known, *more)}.values())


def _regions(access: AWSAccess, region: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((region, *access.regions)))


def _arch() -> Arch:
    """This machine's architecture, so that the same packages can be installed there."""
    return "arm64" if platform.machine().lower() in ("arm64", "aarch64") else "x86_64"
