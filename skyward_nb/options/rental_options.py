"""Options that say which machines are rented, where and for how much, made fields of a spec. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from skyward_nb.words.accelerators import Accelerator
from skyward_nb.words.aws_access import AWSAccess
from skyward_nb.words.errors import OptionError
from skyward_nb.words.spec import PoolSpec

OF_AWS = ("region", "zones", "instance_type", "ami", "subnet", "security_group", "aws_profile")
"""Options that are fields of `AWSAccess`; `aws_profile` is its `profile`, as a cell has one, too."""

OF_RENTED = ("cpus", "memory", "spot", "max_cost", "confirm_above", "on_preempt")
"""Options that are fields of a spec, and mean nothing for machines that cost nothing."""

NOT_OF_SPEC = (*OF_AWS, "aws", "yes")
"""What is no field of a spec as it is asked for; `aws` is a whole `AWSAccess`, given in Python."""

_SILENT = ("max_cost", "confirm_above")
"""What holds for machines of one's own whatever is said."""
_ZONE = re.compile(r"(.*\d)[a-z]")


def heeded(options: Mapping[str, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    """Options without those defaults that are about rented machines, where none are rented."""
    if options.get("provider") == "aws":
        return dict(options)
    about = {*OF_AWS, *OF_RENTED, "yes"} - {*stated}
    return {option: value for option, value in options.items() if option not in about}


def aws_fields(base: PoolSpec, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a spec that follow from options of rented machines.

    Raises `OptionError` for those that mean nothing without `provider=aws`.
    """
    if asked.get("provider", base.provider) != "aws":
        _check_none_asked(asked)
        plain = PoolSpec()
        return {"aws": None} | {name: getattr(plain, name) for name in OF_RENTED if name in asked}
    access = aws_of(base.aws, asked)
    fields: dict[str, Any] = {"aws": access}
    if asked.get("yes"):
        fields["confirm_above"] = None
    if asked.get("max_cost") == 0:
        raise OptionError("max_cost", "max_cost=0: machines that cost nothing are provider=local")
    if access.instance_type is not None and "accelerator" not in asked and not base.accelerator:
        fields["accelerator"] = _accelerator_of(access.instance_type)
    return fields


def _accelerator_of(instance_type: str) -> Accelerator | None:
    """What machines of this type have, as far as is known here: a rank for each is meant."""
    from skyward_nb.providers.aws.price_table import shipped_types

    found = next((each for each in shipped_types() if each.name == instance_type), None)
    return Accelerator(found.gpu, found.gpus) if found is not None and found.gpu else None


def _check_none_asked(asked: Mapping[str, Any]) -> None:
    if asked.get("spot", "no") == "yes":
        raise OptionError(
            "spot", "spot=yes: only rented machines are spot machines, those of provider=aws"
        )
    for option in (*OF_AWS, *OF_RENTED, "yes"):
        if option in asked and option not in (*_SILENT, "spot"):
            raise OptionError(
                option, f"{option}= is about machines that are rented: it goes with provider=aws"
            )


def aws_of(base: AWSAccess | None, asked: Mapping[str, Any]) -> AWSAccess:
    """Where machines are rented, as is asked for or else as in `base`; raises `OptionError`."""
    given = {option: asked[option] for option in OF_AWS if option in asked}
    changes: dict[str, Any] = {
        ("profile" if option == "aws_profile" else option): value
        for option, value in given.items()
        if option != "region"
    }
    if "region" in given:
        changes["region"], *others = given["region"]
        changes["regions"] = tuple(others)
    if "user" in asked:
        changes["user"] = asked["user"]
    access = (asked.get("aws") or base or AWSAccess()).having(**changes)
    of_zones = [found[1] for zone in access.zones if (found := _ZONE.fullmatch(zone))]
    if access.region is None and of_zones:
        others = tuple(dict.fromkeys(of_zones[1:]))
        access = access.having(region=of_zones[0], regions=others)
    known = (access.region, *access.regions)
    for zone in access.zones:
        found = _ZONE.fullmatch(zone)
        if found is not None and found[1] not in known:
            raise OptionError(
                "zones", f"zones={zone}: that is no zone of region={','.join(filter(None, known))}"
            )
    _check_login(access)
    return access


def _check_login(access: AWSAccess) -> None:
    if access.user is not None and access.ami is None:
        raise OptionError(
            "user", "user= is who logs in to an image of your own: name it, ami=ami-…"
        )
