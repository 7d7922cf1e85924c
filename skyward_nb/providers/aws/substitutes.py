"""Offers and budgets for the replacement of reclaimed machines. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from skyward_nb.providers.aws.rental_records import RunningInstance
from skyward_nb.words.offers import Bill, InstanceType, Offer, spell_dollars
from skyward_nb.words.spec import PoolSpec


def offers_alike(
    spec: PoolSpec,
    offers: Sequence[Offer],
    lost: Sequence[RunningInstance],
    others: Sequence[RunningInstance],
) -> tuple[list[Offer], list[tuple[str, str]]]:
    """(offers of machines like the lost ones, in their order; offers left out, with the reasons).

    They are in the region of the `others`, in the same zone first; of the same type first, and of another one
    only if it has the same accelerators.
    """
    first = lost[0]
    there = [offer for offer in offers if offer.region == first.region]
    known = {offer.type.name: offer.type for offer in there}
    fitting = [offer for offer in there if _is_alike(offer.type, known.get(first.type), first.type)]
    fitting.sort(key=lambda offer: offer.type.name != first.type)  # otherwise in their order
    best = list(dict.fromkeys(each.zone for each in (*others, *lost)))
    found: list[Offer] = []
    refused: list[tuple[str, str]] = []
    for offer in fitting:
        zones = sorted(offer.zones, key=lambda zone: _rank(best, zone))
        if others and offer.type.efa and spec.aws is not None and spec.aws.placement != "no":
            # EFA does not reach other zones.
            zones = [zone for zone in zones if zone == others[0].zone]
            if not zones:
                continue
        if why := _not_agreed(spec, offer, lost, others):
            refused.append((_spell(offer), why))
        else:
            found.append(replace(offer, zones=tuple(zones)))
    return found, refused


def lasting(
    offers: Sequence[Offer], nodes: int, share: float, least: float
) -> tuple[list[Offer], list[tuple[str, str]]]:
    """(offers that a `share` of the budget pays for `least` seconds; offers left out, with the reasons)."""
    found: list[Offer] = []
    refused: list[tuple[str, str]] = []
    for offer in offers:
        lasts = offer.lasts(share, nodes)
        if lasts is None:
            refused.append((_spell(offer), "its price is not known, and max_cost= needs it"))
        elif lasts < least:
            why = f"the rest of max_cost= would be spent in {lasts:.0f} s"
            refused.append((_spell(offer), why))
        else:
            found.append(offer)
    return found, refused


def _spell(offer: Offer) -> str:
    return f"{'spot ' * offer.spot}{offer.type.name} in {offer.region}"


def _rank(best: list[str], zone: str) -> int:
    return best.index(zone) if zone in best else len(best)


def _is_alike(kind: InstanceType, lost: InstanceType | None, name: str) -> bool:
    """Whether a type has the same accelerators as the lost one, which is called `name`."""
    if lost is None:
        return kind.name == name
    if (kind.arch, kind.gpu, kind.gpus) != (lost.arch, lost.gpu, lost.gpus):
        return False
    # An A100 has 40 or 80 GB, and an L4 may be a part of one.
    return kind.gpu_memory >= lost.gpu_memory and kind.gpu_part >= lost.gpu_part


def _not_agreed(
    spec: PoolSpec, offer: Offer, lost: Sequence[RunningInstance], others: Sequence[RunningInstance]
) -> str:
    """Why the user has not agreed to the pool's new price for an hour; "" if that was agreed to.

    Agreed are the price so far and `confirm_above`; `max_cost` is an agreement to any price.
    """
    if spec.confirm_above is None:
        return ""
    if spec.max_cost is not None:
        return "" if offer.price is not None else "its price is not known, and max_cost= needs it"
    before, rest = rate_of([*lost, *others]), rate_of(others)
    if before is None:
        return ""  # the user agreed without a price
    if offer.price is None or rest is None:
        return "its price is not known"
    now = rest + offer.price.dollars * len(lost)
    if now <= max(before, spec.confirm_above) + 1e-9:
        return ""
    return (
        f"the pool would cost {spell_dollars(now)} an hour, over confirm_above={spec.confirm_above:g} and "
        f"the {spell_dollars(before)} that it cost"
    )


def rate_of(machines: Collection[RunningInstance]) -> float | None:
    """Dollars an hour of machines; None if one price is not known."""
    prices = [each.price for each in machines]
    known = [price for price in prices if price is not None]
    return sum(known) if len(known) == len(prices) else None


def bill_of(machines: Sequence[RunningInstance], before: Bill, now: float) -> Bill:
    """The bill of a pool from now on, with these machines."""
    kinds = Counter(f"{'spot ' * each.spot}{each.type} in {each.zone}" for each in machines)
    what = ", ".join(f"{count} × {kind}" for kind, count in kinds.items())
    spent = before.spent(now)
    return replace(
        before,
        dollars=rate_of(machines),
        began=now,
        first=before.since,
        what=what,
        before=before.before if spent is None else spent,
    )


def share_of(
    bill: Bill, others: Collection[RunningInstance], others_end: float | None, now: float
) -> float | None:
    """Dollars of `max_cost` for new machines: the rest after the others' cost until `others_end`.

    None without a budget.
    """
    spent = bill.spent(now)
    if bill.max_cost is None or spent is None:
        return None
    hours = max(0.0, (others_end or now) - now) / 3600
    return bill.max_cost - spent - (rate_of(others) or 0.0) * hours
