"""What an account's quotas of vCPUs allow, before EC2 refuses what is past them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from skyward_nb.providers.aws.api_errors import AWSError, Quota, quota_of, spell_quota
from skyward_nb.providers.aws.client import AWSClient
from skyward_nb.words.offers import Offer, Quote
from skyward_nb.words.provider_access import AWSAccess
from skyward_nb.words.spec import PoolSpec

_MOST_NAMED = 3
_LIMIT = 10.0


async def quota_remarks(spec: PoolSpec, quote: Quote) -> tuple[str, ...]:
    """Which offers a quota refuses whatever else runs, in words; nothing of quotas that may not be read."""
    access = spec.aws or AWSAccess()
    if access.capacity_block is not None or access.reservation is not None:
        return ()  # bought or reserved already
    cloud = AWSClient.of(access)
    counted: dict[tuple[str, Quota], list[Offer]] = {}
    for offer in quote.offers:
        key = offer.region, quota_of(offer.type.name, spot=offer.spot)
        counted.setdefault(key, []).append(offer)
    limits = await asyncio.gather(*(limit_of(cloud, region, quota) for region, quota in counted))
    remarks: list[str] = []
    for ((region, quota), offers), limit in zip(counted.items(), limits, strict=True):
        refused = [each for each in offers if each.type.cpus * quote.nodes > (limit or 0)]
        if limit is not None and refused:
            needed = min(each.type.cpus for each in refused) * quote.nodes
            words = spell_quota(quota, region, limit, needed)
            remarks.append(f"EC2 will refuse {_names(refused)}: {words}")
    return tuple(remarks)


async def limit_of(cloud: AWSClient, region: str, quota: Quota) -> float | None:
    """The vCPUs that a quota allows there; None where these credentials may not read it, or nobody answers."""
    try:
        asking = cloud.ask(
            "GetServiceQuota",
            region,
            service="service-quotas",
            ServiceCode="ec2",
            QuotaCode=quota.code,
        )
        said = await asyncio.wait_for(asking, _LIMIT)
        return float(said["Quota"]["Value"])
    except (AWSError, TimeoutError):
        return None


def _names(offers: Iterable[Offer]) -> str:
    names = [*dict.fromkeys(each.type.name for each in offers)]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
