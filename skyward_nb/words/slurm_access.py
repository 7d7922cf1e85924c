"""A pool's use of Slurm, as one value: `SlurmAccess`. Pure."""

from __future__ import annotations

import msgspec

CURRENT = "current"
"""Of `job=`: the job that the notebook itself is in."""


class SlurmAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How nodes are asked of Slurm; what is None is left out, and Slurm's own default holds.

    `login` is a host whose commands are used, by SSH, None: those of this machine. `job` is an allocation that is there,
    by its id or `CURRENT`: then nothing is submitted. `gres` is Slurm's word for devices of each node, `extra` has further arguments of sbatch. `modules` are loaded and `before` run, as lines of the batch shell, on each node
    before the ranks are there.
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
