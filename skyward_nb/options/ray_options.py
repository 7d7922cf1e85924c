"""Turns the options about Ray into a part of a pool's spec. Pure."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from skyward_nb.words.errors import OptionError
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.provider_access import RayAccess
from skyward_nb.words.spec import PoolSpec

OF_RAY = ("address", "resources", "waits")
"""Options that are fields of `RayAccess`."""


def ray_options(asked: PoolOptions) -> list[str]:
    """Which of them are stated."""
    return [option for option in OF_RAY if option in asked.stated]


def ray_of(base: RayAccess | None, asked: PoolOptions) -> RayAccess:
    """The requested use of Ray, completed by `base`."""
    changes: dict[str, Any] = {option: getattr(asked, option) for option in ray_options(asked)}
    return replace(asked.ray or base or RayAccess(), **changes)


def with_ray(spec: PoolSpec, asked: PoolOptions) -> PoolSpec:
    """A spec with the requested use of Ray; raises `OptionError` for options that need provider=ray."""
    given = ray_options(asked)
    if spec.provider != "ray":
        if given:
            option = given[0]
            raise OptionError(option, f"{option}= is about Ray: it goes with provider=ray")
        return replace(spec, ray=None)
    return replace(spec, ray=ray_of(spec.ray, asked))
