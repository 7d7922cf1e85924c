"""Selects the types that fit a spec, and orders their offers. Pure.

The order of the offers decides on the next zone, type and region; spot offers are before those on demand.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from skyward_nb.providers.aws.mig_types import cut_alike, cut_remarks
from skyward_nb.words.accelerators import Accelerator, other_ways
from skyward_nb.words.catalogue import kind_of
from skyward_nb.words.errors import NothingFits
from skyward_nb.words.offers import Arch, InstanceType, Need, Offer, Price, spell_dollars
from skyward_nb.words.provider_access import AWSAccess
from skyward_nb.words.spec import PoolSpec

LEAST = {"cpus": Need(2, more=True), "memory": Need(4, more=True)}
"""The least of a machine without accelerators, if the spec states no needs."""

_MOST = 12
"""The most offers of each kind in one region."""
_DEARER = 2.0
"""The most that an equivalent of the cheapest type may cost, as a multiple of its price."""
_CONTINENT = 3
"""Letters that near regions share: `eu-`."""
_UNDRIVEN = ("g3", "g3s", "p2", "p3", "p3dn")
"""Families whose GPUs are too old for the driver of AWS's images, which starts with Turing."""
_NO_DRIVER = "AWS has no image any more whose driver supports these GPUs: name one with ami="
_NO_PART_DRIVER = (
    "parts of GPUs need NVIDIA's GRID driver, which AWS's image for deep learning lacks: name one that "
    "has it with ami="
)
"""https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/install-nvidia-driver.html"""
_SIZE = re.compile(r"-(\d+)GB$")
_THROTTLED = re.compile(r"t\d|[a-z0-9]+-flex\.")
"""Types with processors that are throttled at times."""


class RegionStock(msgspec.Struct, frozen=True, kw_only=True):
    """The stock of some types in a region: zones that offer each, list prices, spot prices.

    `zones` is None if AWS did not say; then every zone may have them.
    """

    region: str
    zones: Mapping[str, tuple[str, ...]] | None
    listed: Mapping[str, Price]
    spot: Mapping[str, Mapping[str, Price]]


class MatchingTypes(msgspec.Struct, frozen=True):
    """Types that fit, and remarks on them."""

    types: tuple[InstanceType, ...]
    remarks: tuple[str, ...] = ()


# ── types ───────────────────────────────────────────────────────────────────────────────


def fitting(
    spec: PoolSpec, types: Iterable[InstanceType], listed: Mapping[str, Price], arch: Arch
) -> MatchingTypes:
    """The types that a node of this pool may have; `arch` is for machines without accelerators.

    The prices `listed` choose among many types. Raises `NothingFits`, with the nearest types.
    """
    known = tuple(types)
    access = spec.aws or AWSAccess()
    wanted = None if spec.simulate else spec.accelerator
    if access.instance_type is not None:
        named = _named(access.instance_type, wanted, known, spec)
        return MatchingTypes((named,), cut_remarks(wanted, named, spec) if wanted else ())
    if wanted is not None:
        return _with_accelerator(wanted, _of_needs(spec, known, Need(0, more=True)), known, spec)
    plain = [each for each in known if each.gpu is None and each.arch == arch]
    free = [each for each in plain if not _THROTTLED.match(each.name)]
    found = _of_needs(spec, free, None)
    if not found:
        raise NothingFits(*_nearest(spec, free))
    found.sort(key=lambda each: (_dollars(listed.get(each.name)), each.memory, each.name))
    return MatchingTypes(tuple(_equivalents(found, listed)))


def _named(
    name: str, wanted: Accelerator | None, known: Sequence[InstanceType], spec: PoolSpec
) -> InstanceType:
    found = next((each for each in known if each.name == name), None)
    if found is None:
        near = difflib.get_close_matches(name, [each.name for each in known], n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise NothingFits(f"instance_type={name}: EC2 has no such type{hint}", nearest=tuple(near))
    if not _has_driver(found, spec):
        raise NothingFits(f"instance_type={name}: {_why_undriven(found)}")
    if wanted is not None and not (_is(found, wanted) and found.gpus >= wanted.count):
        has = f"{found.gpus * found.gpu_part:g} × {found.gpu}" if found.gpu else "no accelerator"
        raise NothingFits(
            f"instance_type={name} has {has}, but you asked for accelerator={wanted}: leave out one of "
            "the two"
        )
    if wanted is not None:
        cut_alike(wanted, [found], spec)
    for field, need in _needs(spec):
        has = getattr(found, field)
        if not need.met_by(has):
            raise NothingFits(
                f"instance_type={name} has {field}={has:g}, and {field}={need} is asked for: leave out "
                "one of the two"
            )
    return found


def _with_accelerator(
    wanted: Accelerator,
    known: Sequence[InstanceType],
    all_types: Sequence[InstanceType],
    spec: PoolSpec,
) -> MatchingTypes:
    """The types with exactly so many accelerators, or else those with the fewest more."""
    kind = kind_of(wanted.name)
    if kind is not None and kind.maker != "NVIDIA":
        raise NothingFits(
            f"accelerator={wanted.name} cannot be rented: accelerators of {kind.maker} need packages that no "
            f"plugin here supports. Those of NVIDIA can: {_models(all_types)}"
        )
    having = [each for each in known if _is(each, wanted)]
    anywhere = [each for each in all_types if _is(each, wanted)]
    if wanted.part < 1 and not anywhere:
        raise NothingFits(f"accelerator={wanted}: {_parts(all_types)}; {other_ways(wanted)}")
    if not having and anywhere:
        raise NothingFits(*_nearest(spec, anywhere))
    if not having:
        near = difflib.get_close_matches(wanted.name, _names(all_types), n=2, cutoff=0.7)
        hint = f"; did you mean {' or '.join(near)}?" if near else "."
        raise NothingFits(
            f"accelerator={wanted.name}: no type of EC2 has it{hint} There is {_models(all_types)}",
            nearest=tuple(near),
        )
    having = cut_alike(wanted, having, spec)
    types = tuple(each.name for each in having)
    why = _why_undriven(having[0])
    having = [each for each in having if _has_driver(each, spec)]
    if not having:
        raise NothingFits(f"accelerator={wanted} ({', '.join(types)}): {why}", nearest=types)
    counts = sorted({each.gpus for each in having})
    if wanted.count > counts[-1]:
        most = counts[-1]
        nodes = math.ceil(spec.nodes * wanted.count / most)
        types = tuple(each.name for each in having if each.gpus == most)
        raise NothingFits(
            f"accelerator={wanted}: one machine has at most {most} of them ({', '.join(types)}): "
            f"nodes={nodes} accelerator={wanted.name}:{most} gives as many in all",
            nearest=types,
        )
    count = next(each for each in counts if each >= wanted.count)
    chosen = tuple(each for each in having if each.gpus == count)
    cuts = cut_remarks(wanted, chosen[0], spec)
    if count == wanted.count:
        return MatchingTypes(chosen, cuts)
    idle = f"{count - wanted.count} would be idle"
    return MatchingTypes(
        chosen,
        (
            *cuts,
            f"{wanted} is asked for, and the smallest machine with it has {count}: {idle}. "
            f"accelerator={wanted.name}:{count} puts a rank on each",
        ),
    )


def _has_driver(each: InstanceType, spec: PoolSpec) -> bool:
    """Whether the image of a type has a driver for its GPUs, as far as is known."""
    is_own = spec.aws is not None and spec.aws.ami is not None
    family = each.name.partition(".")[0]
    return is_own or not each.gpus or (family not in _UNDRIVEN and each.gpu_part == 1)


def _why_undriven(each: InstanceType) -> str:
    return _NO_DRIVER if each.gpu_part == 1 else _NO_PART_DRIVER


def _parts(types: Iterable[InstanceType]) -> str:
    """The parts of GPUs that can be rented, in words."""
    found = sorted({(str(each.gpu), each.gpu_part) for each in types if each.gpu_part < 1})
    return f"EC2 rents {', '.join(f'{gpu}:{part:g}' for gpu, part in found) or 'whole ones'}"


def _is(each: InstanceType, wanted: Accelerator) -> bool:
    """Whether a type has these accelerators; a memory in the name is that of the device."""
    if each.gpu is None or each.gpu_part != wanted.part:
        return False
    size = _SIZE.search(wanted.name)
    name = wanted.name[: size.start()] if size else wanted.name
    if size is None or each.gpu != name:
        return each.gpu == name
    kind = kind_of(name)  # drivers report a little less than makers
    sizes = kind.memory if kind is not None else (round(each.gpu_memory),)
    return min(sizes, key=lambda gb: abs(gb - each.gpu_memory)) == int(size[1])


def _of_needs(
    spec: PoolSpec, types: Iterable[InstanceType], least: Need | None
) -> list[InstanceType]:
    cpus = spec.cpus or least or LEAST["cpus"]
    memory = spec.memory or least or LEAST["memory"]
    return [each for each in types if cpus.met_by(each.cpus) and memory.met_by(each.memory)]


def _needs(spec: PoolSpec) -> list[tuple[str, Need]]:
    """(field of a type, its need) of the stated needs."""
    fields = (("cpus", spec.cpus), ("memory", spec.memory))
    return [(field, need) for field, need in fields if need is not None]


def _equivalents(found: list[InstanceType], listed: Mapping[str, Price]) -> list[InstanceType]:
    """The first type, and those that cost little more, the cheapest first."""
    limit = _dollars(listed.get(found[0].name)) * _DEARER
    near = [each for each in found if _dollars(listed.get(each.name)) <= limit]
    return (near or found)[:_MOST]


def _nearest(spec: PoolSpec, types: Iterable[InstanceType]) -> tuple[str, tuple[str, ...]]:
    """The message that no type fits, and the names of the nearest types."""
    needs = _needs(spec)

    def far(each: InstanceType) -> tuple[float, float, str]:
        parts = [
            abs(math.log(max(getattr(each, field), 0.5) / max(need.amount, 0.5)))
            for field, need in needs
            if not need.met_by(getattr(each, field))
        ]
        return sum(parts), each.memory, each.name

    near = sorted(types, key=far)[:3]
    asked = " ".join(f"{field}={need}" for field, need in needs)
    of = f"accelerator={spec.accelerator} " if spec.accelerator and not spec.simulate else ""
    shown = ", ".join(f"{each.name} ({each.cpus} cpus, {each.memory:g} GB)" for each in near)
    exact = [f"{field}={need}+" for field, need in needs if not need.more]
    more = f"; {' '.join(exact)} also accepts larger ones" if exact else ""
    said = f"{of}{asked}: no type of EC2 is that. The nearest are {shown or 'none'}{more}"
    return said, tuple(each.name for each in near)


def _names(types: Iterable[InstanceType]) -> list[str]:
    return sorted({each.gpu for each in types if each.gpu})


def _models(types: Iterable[InstanceType]) -> str:
    return ", ".join(_names(types))


# ── offers ──────────────────────────────────────────────────────────────────────────────


def offers(
    spec: PoolSpec,
    types: Sequence[InstanceType],
    stocks: Sequence[RegionStock],
    elsewhere: Callable[[str], Sequence[str]] = lambda _: (),
) -> tuple[Offer, ...]:
    """The offers in their order: spot before on demand, region after region, the cheapest first.

    With spot=cheapest the price alone orders them. Raises `NothingFits` if no allowed zone offers any of the
    types, with regions that do (`elsewhere` has them by the name of a type), and if all cost more than
    `max_hourly_cost`.
    """
    zones = spec.aws.zones if spec.aws else ()
    found: list[Offer] = []
    if spec.spot != "no":
        for stock in stocks:
            found += _cheapest(_spot_offers(types, stock, zones))
    if spec.spot != "yes":
        for stock in stocks:
            found += _cheapest(_plain_offers(types, stock, zones))
    if not found:
        raise _nowhere(types, stocks, zones, elsewhere)
    if spec.spot == "cheapest":
        found.sort(key=lambda offer: _dollars(offer.price))
    most = math.inf if spec.max_hourly_cost is None else spec.max_hourly_cost
    if not (within := tuple(each for each in found if _dollars(each.price) <= most)):
        raise _too_dear(found, most)
    return within


def _too_dear(found: Sequence[Offer], most: float) -> NothingFits:
    first = min(found, key=lambda offer: _dollars(offer.price))
    costs = (
        "has no known price"
        if first.price is None
        else f"costs {spell_dollars(first.price.dollars)} an hour"
    )
    return NothingFits(
        f"max_hourly_cost={most:g}: {first.type.name} in {first.region}, the cheapest machine that fits, "
        f"{costs}",
        nearest=(first.type.name,),
    )


def _plain_offers(
    types: Iterable[InstanceType], stock: RegionStock, zones: tuple[str, ...]
) -> list[Offer]:
    return [
        Offer(type=each, region=stock.region, zones=there, price=stock.listed.get(each.name))
        for each in types
        if (there := _zones(each, stock, zones)) is not None
    ]


def _spot_offers(
    types: Iterable[InstanceType], stock: RegionStock, zones: tuple[str, ...]
) -> list[Offer]:
    """An offer for each zone, as their prices differ."""
    found: list[Offer] = []
    for each in types:
        there = _zones(each, stock, zones)
        if there is None:
            continue
        prices = stock.spot.get(each.name, {})
        known = [zone for zone in there or prices if zone in prices]
        found += [
            Offer(type=each, region=stock.region, zones=(zone,), spot=True, price=prices[zone])
            for zone in known
        ]
        if not known:  # no recent spot rentals there, or AWS did not say
            found.append(Offer(type=each, region=stock.region, zones=there, spot=True))
    return found


def _zones(
    each: InstanceType, stock: RegionStock, zones: tuple[str, ...]
) -> tuple[str, ...] | None:
    """The zones of a region where a type may be tried; None without any."""
    of_region = tuple(zone for zone in zones if zone.startswith(stock.region))
    if zones and not of_region:
        return None
    if stock.zones is None:
        return of_region
    offering = stock.zones.get(each.name, ())
    there = tuple(zone for zone in of_region or sorted(offering) if zone in offering)
    return there or None


def _cheapest(found: list[Offer]) -> list[Offer]:
    """The offers that cost little more than the cheapest."""
    found.sort(key=lambda offer: (_dollars(offer.price), offer.type.memory, offer.type.name))
    limit = _dollars(found[0].price) * _DEARER if found else 0.0
    return [offer for offer in found[:_MOST] if _dollars(offer.price) <= limit]


def _dollars(price: Price | None) -> float:
    return math.inf if price is None else price.dollars


def _nowhere(
    types: Sequence[InstanceType],
    stocks: Sequence[RegionStock],
    zones: tuple[str, ...],
    elsewhere: Callable[[str], Sequence[str]],
) -> NothingFits:
    names = ", ".join(each.name for each in types[:4])
    regions = ", ".join(stock.region for stock in stocks)
    of_types = ((stock.zones or {}).get(each.name, ()) for stock in stocks for each in types)
    offered = sorted({zone for zones_of_type in of_types for zone in zones_of_type})
    if offered:
        return NothingFits(
            f"zones={','.join(zones)}: {names} can be had in {', '.join(offered)}, and not in those",
            nearest=tuple(offered),
        )
    others = sorted(
        {region for each in types for region in elsewhere(each.name)},
        key=lambda region: (not region.startswith(stocks[0].region[:_CONTINENT]), region),
    )
    if not others:
        return NothingFits(f"{names} cannot be had in {regions}: region= names another")
    return NothingFits(
        f"{names} cannot be had in {regions}. Of other regions {', '.join(others[:5])} had it: "
        f"region={others[0]}",
        nearest=tuple(others),
    )
