"""The next offer and zone to try after refusals. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from skyward_nb.providers.aws.api_errors import NextStep, Quota, quota_of
from skyward_nb.words.offers import Offer

_LARGE = ("p5", "p6", "trn2", "u-", "u7")
_RUN_LIMIT = 300.0
_LARGE_RUN_LIMIT = 900.0


@dataclass(frozen=True)
class ZoneAttempt:
    """One zone of one offer."""

    offer: Offer
    zone: str

    def __str__(self) -> str:
        spot = "spot " * self.offer.spot
        return f"{spot}{self.offer.type.name} in {self.zone or self.offer.region}"


class OfferWalk:
    """Goes from zone to zone of an offer, then to the next offer; skips those that a refusal rules out."""

    def __init__(self, offers: Sequence[Offer]) -> None:
        self._left = [ZoneAttempt(offer, zone) for offer in offers for zone in offer.zones or ("",)]
        self.refused: list[tuple[ZoneAttempt, str]] = []
        """Attempts, and the reasons why they failed."""

    @property
    def next(self) -> ZoneAttempt | None:
        """The attempt to make now; None if none is left."""
        return self._left[0] if self._left else None

    def refuse(self, way: NextStep, why: str) -> None:
        """Note that the current attempt failed."""
        tried, *left = self._left
        self.refused.append((tried, why))
        if way is NextStep.STOP:
            left = []
        elif way is NextStep.TYPE:
            kind = _type_in_market(tried.offer)
            left = [each for each in left if _type_in_market(each.offer) != kind]
        elif way is NextStep.MARKET:
            left = [each for each in left if not each.offer.spot]
        elif way is NextStep.REGION:
            left = [each for each in left if each.offer.region != tried.offer.region]
        elif way is NextStep.QUOTA:
            quota = _quota_in_region(tried.offer)
            left = [each for each in left if _quota_in_region(each.offer) != quota]
        self._left = left


def is_large(name: str) -> bool:
    """Whether machines of a type take minutes to begin: their memory and GPUs are checked first."""
    return name.startswith(_LARGE)


def run_limit(name: str) -> float:
    """Seconds until machines of a type have to run once EC2 was asked to launch or start them."""
    return _LARGE_RUN_LIMIT if is_large(name) else _RUN_LIMIT


def without(offers: Sequence[Offer], tried: ZoneAttempt) -> tuple[Offer, ...]:
    """The offers that come after an attempt whose machines were taken back: not its zone, none before it."""
    later = offers[offers.index(tried.offer) :]
    first = replace(later[0], zones=later[0].zones[_after(later[0].zones, tried.zone) :])
    return (*([first] if first.zones else []), *later[1:])


def _after(zones: Sequence[str], zone: str) -> int:
    return zones.index(zone) + 1 if zone in zones else len(zones)


def _type_in_market(offer: Offer) -> tuple[str, str, bool]:
    return offer.type.name, offer.region, offer.spot


def _quota_in_region(offer: Offer) -> tuple[str, Quota]:
    return offer.region, quota_of(offer.type.name, spot=offer.spot)


def spell_way(before: ZoneAttempt, now: ZoneAttempt) -> str:
    """How an attempt differs from the one before, in words: `next zone`."""
    if before.offer.spot and not now.offer.spot:
        return "on demand instead of spot"
    if before.offer.region != now.offer.region:
        return "next region"
    if before.offer.type.name != now.offer.type.name:
        return "next type"
    return "next zone"
