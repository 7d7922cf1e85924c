"""Turns the options about Slurm into a part of a pool's spec. Pure."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from skyward_nb.words.accelerators import Accelerator, counted
from skyward_nb.words.catalogue import canonical, kind_of
from skyward_nb.words.errors import OptionError
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.provider_access import CURRENT, SlurmAccess
from skyward_nb.words.spec import PoolSpec

OF_SLURM = {
    "login": "login",
    "job": "job",
    "partition": "partition",
    "account": "account",
    "qos": "qos",
    "constraint": "constraint",
    "reservation": "reservation",
    "gres": "gres",
    "exclusive": "exclusive",
    "extra": "extra",
    "module": "modules",
    "container": "container",
}
"""Options that are fields of `SlurmAccess`, and which ones."""

ALSO_OF_AWS = "reservation"
"""One that is a field of `AWSAccess`, too."""

_SLICE = re.compile(r"\dg\.\d")
OF_NODES = ("cpus", "memory", "on_preempt")
"""Options that Slurm's nodes have in common with rented machines."""

_OF_JOB = ("partition", "account", "qos", "constraint", "reservation", "gres", "exclusive", "extra")
"""Those that say which job to submit."""


def _accelerator_of(gres: str) -> Accelerator | None:
    """The accelerators in Slurm's word for devices, `gpu:a100:4`, if their name is one of the catalogue."""
    for part in gres.split(","):
        kind, _, rest = part.partition(":")
        name, _, count = rest.partition(":")
        # A slice of MIG has the name of its GPU, too.
        if kind != "gpu" or kind_of(name) is None or _SLICE.search(name):
            continue
        with contextlib.suppress(OptionError):
            return counted(canonical(name), count or "1")
    return None


def slurm_options(asked: PoolOptions) -> list[str]:
    """Which of them are stated; `partition` without a name is about GPUs that are cut."""
    stated = [option for option in OF_SLURM if option in asked.stated]
    return [each for each in stated if each != "partition" or isinstance(asked.partition, str)]


def slurm_of(base: SlurmAccess | None, asked: PoolOptions) -> SlurmAccess:
    """The requested use of Slurm, completed by `base`."""
    changes: dict[str, Any] = {
        OF_SLURM[option]: getattr(asked, option) for option in slurm_options(asked)
    }
    return replace(asked.slurm or base or SlurmAccess(), **changes)


def with_slurm(spec: PoolSpec, asked: PoolOptions) -> PoolSpec:
    """A spec with the requested use of Slurm; raises `OptionError` for options that need provider=slurm."""
    given = slurm_options(asked)
    if spec.provider == "aws":
        given = [each for each in given if each != ALSO_OF_AWS]
    if spec.provider != "slurm":
        if given:
            option = given[0]
            raise OptionError(option, f"{option}= is about Slurm: it goes with provider=slurm")
        return replace(spec, slurm=None)
    access = slurm_of(spec.slurm, asked)
    if access.gres and asked.accelerator is UNSET and spec.accelerator is None:
        spec = replace(spec, accelerator=_accelerator_of(access.gres))
    if spec.mig and not (access.gres or access.job or spec.simulate):
        raise OptionError(
            "mig",
            f"mig={spec.mig}: in Slurm, each site has names of its own for slices: gres=gpu:TYPE:N "
            "(`sinfo -o '%N %G'` lists them)",
        )
    if access.login is not None and access.job == CURRENT:
        raise OptionError(
            "job", "job=current is the job of this notebook, and login= is elsewhere: give its id"
        )
    _check_job(spec, access)
    return replace(spec, slurm=access)


def _check_job(spec: PoolSpec, access: SlurmAccess) -> None:
    """Raise `OptionError` for options about a job to submit, where one is there."""
    if access.job is None:
        return
    for option in _OF_JOB:
        if getattr(access, option):
            raise OptionError(
                option,
                f"{option}= is about a job to submit, and job={access.job} is there: leave out one",
            )
    if spec.memory is not None:
        raise OptionError(
            "memory",
            f"memory= is about a job to submit, and job={access.job} has what it was given: leave out one",
        )
    if spec.on_preempt == "replace":
        raise OptionError(
            "on_preempt",
            f"on_preempt=replace is about a job of the pool's own, and job={access.job} is not",
        )
