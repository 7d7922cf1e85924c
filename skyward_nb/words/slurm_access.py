"""A pool's use of Slurm, as one value: `SlurmAccess`. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

CURRENT = "current"
"""Of `job=`: the job that the notebook itself is in."""

ContainerRuntime = Literal["pyxis", "apptainer"]
"""What runs a container on nodes: pyxis is part of srun, apptainer (or singularity) a program there."""


class SlurmAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How nodes are asked of Slurm; what is None is left out, and Slurm's own default holds.

    `login` is a host whose commands are used, by SSH, None: those of this machine. `job` is an allocation that is there,
    by its id or `CURRENT`: then nothing is submitted. `gres` is Slurm's word for devices of each node, `extra` has
    further arguments of sbatch. `modules` are loaded and `before` run, as lines of the batch shell, on each node before
    the ranks are there. `container` is the image in which all that runs on nodes runs, as pyxis or apptainer names it.
    """

    login: str | None = None
    job: str | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    gres: str | None = None
    exclusive: bool = False
    extra: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    container: str | None = None
