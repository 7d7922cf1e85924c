"""Turns the options about rented machines into a part of a pool's spec. Pure."""

from __future__ import annotations

import re
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from skyward_nb.options.aws_readers import RESERVED
from skyward_nb.options.host_access import elsewhere_alone, logins_alone
from skyward_nb.options.kubernetes_options import kubernetes_options
from skyward_nb.options.ray_options import ray_options
from skyward_nb.options.skypilot_options import ALSO_OF_SKYPILOT, skypilot_options
from skyward_nb.options.slurm_options import ALSO_OF_AWS, OF_NODES, slurm_options
from skyward_nb.words.accelerators import Accelerator, other_ways
from skyward_nb.words.errors import OptionError
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.provider_access import AWSAccess
from skyward_nb.words.spec import PoolSpec

OF_AWS = (
    "region", "zones", "instance_type", "ami", "subnet", "security_group", "aws_profile", "public_ip", "jump", "caller",
    "tags", "disk", "throughput", "instance_profile", "capacity_block",
    "warm",
)  # fmt: skip
"""Options that are fields of `AWSAccess`; `aws_profile` is its `profile`, as a cell has one, too."""

OF_RENTED = (
    "cpus", "memory", "spot", "max_cost", "max_hourly_cost", "confirm_above", "on_preempt",
)  # fmt: skip
"""Options that are fields of a spec, and only of use for rented machines."""

_NEEDS = ("cpus", "memory")
"""Options that a rehearsal of a program for rented machines notes."""
_WITH_NEEDS = ("slurm", "kubernetes", "ray")
"""Providers of free machines that are asked for them."""
_SILENT = ("max_cost", "max_hourly_cost", "confirm_above")
"""Options that free machines meet with any value."""
_ZONE = re.compile(r"(.*\d)[a-z]")


def without_unused(options: PoolOptions, stated: PoolOptions) -> PoolOptions:
    """Options without defaults about rented machines or engines if those are not used; `stated` ones stay."""
    unused = {*OF_AWS, *OF_RENTED, "volumes", "yes"} if options.provider != "aws" else set[str]()
    if options.provider in _WITH_NEEDS:
        unused -= {*_NEEDS}
    if options.provider == "slurm":
        unused -= {*OF_NODES}
    if options.provider == "sky":
        unused -= {*ALSO_OF_SKYPILOT}
    if options.provider != "slurm":
        unused |= {*slurm_options(options)}
    if options.provider == "aws":
        unused -= {ALSO_OF_AWS}
    if options.provider != "kubernetes":
        unused |= {*kubernetes_options(options)}
    if options.provider != "ray":
        unused |= {*ray_options(options)}
    if options.provider != "sky":
        unused |= {*skypilot_options(options)}
    if options.provider not in (UNSET, "ssh", "aws"):
        unused |= logins_alone(options)
    unused |= elsewhere_alone(options)
    return options.without(unused - {*stated.stated})


def with_rental(spec: PoolSpec, asked: PoolOptions) -> PoolSpec:
    """A spec with the requested machines to rent.

    Raises `OptionError` for options that need `provider=aws`.
    """
    if spec.provider != "aws":
        noted = _noted(spec)
        _check_none_asked(asked.without(noted))
        if spec.volumes:
            raise OptionError(
                "volumes",
                "volumes= are mounted on machines that are rented, those of provider=aws: elsewhere mount "
                "a bucket or a file system yourself, or read a bucket with boto3",
            )
        gpu = spec.accelerator
        if gpu is not None and gpu.part < 1 and not spec.simulate:
            raise OptionError("accelerator", f"accelerator={gpu}: {other_ways(gpu)}")
        plain = PoolSpec()
        unused = {n: getattr(plain, n) for n in OF_RENTED if n in asked.stated and n not in noted}
        return replace(spec, aws=None, **unused)
    access = aws_of(spec.aws, asked)
    for option in ("max_cost", "max_hourly_cost"):
        if getattr(asked, option) == 0:
            raise OptionError(option, f"{option}=0: machines that cost nothing are provider=local")
    _check_no_spot(spec, access)
    _check_warm(spec, access)
    if asked.yes:
        spec = replace(spec, confirm_above=None)
    writes = [each for each in spec.volumes if each.bucket and not each.read_only]
    if writes and access.instance_profile is None:
        raise OptionError(
            "volumes",
            f"volumes=: machines have no role that may write to {writes[0].bucket}: name one, "
            "instance_profile=NAME (in Python sky.AWS(instance_profile=...)). Without it, public buckets can be read.",
        )
    if access.instance_type and asked.accelerator is UNSET and not spec.accelerator:
        spec = replace(spec, accelerator=_accelerator_of(access.instance_type, spec.mig))
    if spec.mig and asked.partition is UNSET and not spec.simulate:
        spec = replace(spec, partition=True)  # new machines have GPUs that are not cut
    return replace(spec, aws=access)


def _noted(spec: PoolSpec) -> tuple[str, ...]:
    """The options about rented machines that a pool of another provider than AWS takes."""
    if spec.provider == "sky":
        return ALSO_OF_SKYPILOT
    if spec.provider == "slurm":
        return OF_NODES
    return _NEEDS if spec.simulate or spec.provider in _WITH_NEEDS else ()


def _accelerator_of(instance_type: str, mig: str | None) -> Accelerator | None:
    """The accelerators of an instance type, if the shipped table has it; their memory says how they are cut."""
    from skyward_nb.providers.aws.price_table import shipped_types

    found = next((each for each in shipped_types() if each.name == instance_type), None)
    if found is None or not found.gpu:
        return None
    size = f"-{found.mig.memory.upper()}" if mig and found.mig else ""
    return Accelerator(found.gpu + size, found.gpus)


def _check_none_asked(asked: PoolOptions) -> None:
    if asked.spot == "yes":
        raise OptionError(
            "spot",
            "spot=yes (allocation='spot'): only rented machines are spot machines, those of provider=aws",
        )
    for option in (*OF_AWS, *OF_RENTED, "yes"):
        if option in asked.stated and option not in (*_SILENT, "spot"):
            raise OptionError(
                option, f"{option}= is about machines that are rented: it goes with provider=aws"
            )


def aws_of(base: AWSAccess | None, asked: PoolOptions) -> AWSAccess:
    """The requested access to AWS, completed by `base`; raises `OptionError`."""
    changes: dict[str, Any] = {
        ("profile" if option == "aws_profile" else option): getattr(asked, option)
        for option in (*OF_AWS, ALSO_OF_AWS, "user")
        if option in asked.stated and option != "region"
    }
    if asked.region:
        changes |= {"region": asked.region[0], "regions": asked.region[1:]}
    access = replace(asked.aws or base or AWSAccess(), **changes)
    of_zones = [found[1] for zone in access.zones if (found := _ZONE.fullmatch(zone))]
    if access.region is None and of_zones:
        others = tuple(dict.fromkeys(of_zones[1:]))
        access = replace(access, region=of_zones[0], regions=others)
    known = (access.region, *access.regions)
    for zone in access.zones:
        found = _ZONE.fullmatch(zone)
        if found is not None and found[1] not in known:
            raise OptionError(
                "zones",
                f"zones={zone}: that is not a zone of region={','.join(filter(None, known))}",
            )
    if access.user is not None and access.ami is None:
        raise OptionError("user", "user= is the login name of your own image: name it, ami=ami-…")
    _check_reserved(access)
    if access.security_group and access.caller:
        raise OptionError(
            "caller",
            "caller= is for the pool's own security group, and security_group= is yours: leave out one",
        )
    return access


def _check_no_spot(spec: PoolSpec, access: AWSAccess) -> None:
    if (access.reservation or access.capacity_block) and spec.spot != "no":
        why = f"spot={spec.spot}: reserved capacity cannot be spot: leave out one of the two"
        raise OptionError("spot", why)


def _check_warm(spec: PoolSpec, access: AWSAccess) -> None:
    """Raise `OptionError` where EC2 does not stop machines.

    Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Stop_Start.html.
    """
    if access.warm is None:
        return
    why = ""
    if spec.spot != "no":
        why = f"spot={spec.spot}: EC2 stops no machine of a one-time spot request"
    elif access.capacity_block:
        why = "capacity_block=: the machines of a block end with it"
    if why:
        raise OptionError("warm", f"warm= goes with machines on demand, and not with {why}")


def _check_reserved(access: AWSAccess) -> None:
    """Raise `OptionError` for reserved capacity without the type and the zone that it has."""
    option = "capacity_block" if access.capacity_block else "reservation"
    found = access.capacity_block or access.reservation
    if found is None:
        return
    if access.capacity_block and access.reservation:
        raise OptionError(option, "capacity_block= and reservation= are two ways: leave out one")
    if not re.fullmatch(RESERVED, found):
        raise OptionError(
            option, f"{option}={found}: that is written {option}=cr-0123456789abcdef0"
        )
    if access.instance_type is None or len(access.zones) != 1:
        raise OptionError(
            option,
            f"{option}={found} is of one type in one zone: name both, instance_type=p5.48xlarge zones=us-east-1a "
            f"(`aws ec2 describe-capacity-reservations --capacity-reservation-ids {found}` tells them)",
        )
