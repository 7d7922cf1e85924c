"""Turns the options about SkyPilot into a part of a pool's spec. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from skyward_nb.words.errors import OptionError
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.provider_access import SkyPilotAccess
from skyward_nb.words.spec import PoolSpec

OF_SKYPILOT = ("infra",)
"""Options that are fields of `SkyPilotAccess`."""

ALSO_OF_SKYPILOT = ("cpus", "memory", "spot", "max_cost", "max_hourly_cost", "confirm_above", "yes")
"""Options that its machines have in common with those of AWS."""

_OTHER_WORDS = {
    "region": "infra=CLOUD/REGION",
    "zones": "infra=CLOUD/REGION/ZONE",
    "instance_type": "sky.SkyPilot(instance_type=...)",
    "ami": "sky.SkyPilot(image_id=...)",
}


def skypilot_options(asked: PoolOptions) -> list[str]:
    """Which of those that are its alone are stated."""
    return [option for option in OF_SKYPILOT if option in asked.stated]


def skypilot_of(base: SkyPilotAccess | None, asked: PoolOptions) -> SkyPilotAccess:
    """The requested use of SkyPilot, completed by `base`."""
    changes = {option: getattr(asked, option) for option in skypilot_options(asked)}
    return replace(asked.skypilot or base or SkyPilotAccess(), **changes)


def with_skypilot(spec: PoolSpec, asked: PoolOptions) -> PoolSpec:
    """A spec with the requested use of SkyPilot; raises `OptionError` for options that need provider=sky."""
    given = skypilot_options(asked)
    if spec.provider != "sky":
        if given:
            option = given[0]
            raise OptionError(option, f"{option}= is about SkyPilot: it goes with provider=sky")
        return replace(spec, skypilot=None)
    for option, other in _OTHER_WORDS.items():
        if option in asked.stated:
            raise OptionError(option, f"{option}= is AWS's: with provider=sky it is {other}")
    if spec.spot in ("auto", "cheapest"):
        raise OptionError(
            "spot", f"spot={spec.spot}: SkyPilot rents spot machines or none: spot=yes, or spot=no"
        )
    for option in ("max_cost", "max_hourly_cost"):
        if getattr(asked, option) == 0:
            raise OptionError(option, f"{option}=0: machines that cost nothing are provider=local")
    if asked.yes:
        spec = replace(spec, confirm_above=None)
    return replace(spec, skypilot=skypilot_of(spec.skypilot, asked))
