"""What is submitted for a pool: the arguments of sbatch and the batch script. Pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence

from skyward_nb.providers.far.keeper import KEEPER, PATIENCE
from skyward_nb.words.slurm_access import SlurmAccess
from skyward_nb.words.spec import PoolSpec

NOTICE = 120
"""Seconds before its time limit at which a job is told."""


def job_name(pool_id: str) -> str:
    """The name of a pool's job, by which it is found again."""
    return f"skyward-{pool_id}"


def keep_of(pool_id: str, node: str) -> str:
    """The keeper's folder on a node; nodes may share a machine, as in tests."""
    return f"/tmp/.skyward-{pool_id}.{node}"  # noqa: S108 - the keeper makes it anew, for this user alone


def arguments(spec: PoolSpec, pool_id: str) -> list[str]:
    """The arguments of sbatch: only what was asked for, and what a pool needs."""
    access = spec.slurm or SlurmAccess()
    asked = {
        "partition": access.partition,
        "account": access.account,
        "qos": access.qos,
        "constraint": access.constraint,
        "reservation": access.reservation,
        "gres": access.gres,
        "gpus-per-node": _gpus(spec),
        "cpus-per-task": f"{math.ceil(spec.cpus.amount)}" if spec.cpus else None,
        "mem": f"{math.ceil(spec.memory.amount * 1024)}M" if spec.memory else None,
        "time": _minutes(spec.ttl) if spec.ttl else None,
    }
    return [
        "--parsable",
        "--no-requeue",
        "--chdir=/",
        "--export=NONE",
        f"--job-name={job_name(pool_id)}",
        f"--nodes={spec.nodes}",
        "--ntasks-per-node=1",
        f"--signal=B:USR2@{NOTICE}",
        *(f"--{name}={value}" for name, value in asked.items() if value is not None),
        *(["--exclusive"] if access.exclusive else []),
        *access.extra,
    ]


def _gpus(spec: PoolSpec) -> str | None:
    """GPUs of each node by Slurm's count; what `gres` names it by itself is not said twice."""
    asked = spec.real_accelerator
    if asked is None or (spec.slurm is not None and spec.slurm.gres):
        return None
    return f"{asked.name.lower()}:{asked.count}"


def _minutes(seconds: float) -> str:
    """A time limit as Slurm takes it: `90:00`, a whole minute or more."""
    whole = max(60, math.ceil(seconds))
    return f"{whole // 60}:{whole % 60:02}"


def batch_script(spec: PoolSpec, pool_id: str) -> str:
    """The script of a pool's job: a keeper on each node, which is told when time is short."""
    access = spec.slurm or SlurmAccess()
    lines = [
        "#!/bin/bash -l" if access.modules else "#!/bin/sh",
        f"# pool {pool_id} of skyward_nb: a keeper on each node, whose child is the pool's agent",
        *_before(access),
        "trap '[ -z \"$step\" ] || kill -USR2 $step' USR2",
        f"srun {' '.join(map(shlex.quote, step_arguments(pool_id)))} &",
        "step=$!",
        "while :; do wait $step; code=$?; kill -0 $step 2>/dev/null || exit $code; done",
    ]
    return "\n".join(lines) + "\n"


def _before(access: SlurmAccess) -> Iterator[str]:
    for module in access.modules:
        yield f"module load {shlex.quote(module)} || exit"
    yield from access.before


def step_script(spec: PoolSpec, pool_id: str, job: str, nodes: Sequence[str]) -> str:
    """A script that starts keepers on nodes of a job that is there; they outlive it, and the notebook."""
    access = spec.slurm or SlurmAccess()
    words = [
        f"--jobid={job}",
        "--overlap",
        f"--nodes={len(nodes)}",
        f"--ntasks={len(nodes)}",
        f"--nodelist={','.join(nodes)}",
        "--mem=0",
        "--chdir=/",
        "--quiet",
        *step_arguments(pool_id),
    ]
    start = f"nohup srun {' '.join(map(shlex.quote, words))} </dev/null >/dev/null 2>&1 &"
    inner = "\n".join([*_before(access), start]) + "\n"
    return f"exec /bin/bash -lc {shlex.quote(inner)}" if access.modules else inner


def step_arguments(pool_id: str) -> list[str]:
    """The arguments of srun for the keepers: a step of one task on each node, none of which ends the others."""
    folder = keep_of(pool_id, "$SLURMD_NODENAME")
    program = f'set -- "{folder}" {PATIENCE}\n{KEEPER}'
    return [
        "--ntasks-per-node=1",
        "--kill-on-bad-exit=0",
        "--export=ALL",
        "/bin/sh",
        "-c",
        program,
    ]


def dry_run_lines(spec: PoolSpec) -> Iterator[str]:
    """The command and the script that a pool would be submitted with; the keeper's own text is left out."""
    pool_id = f"{spec.name}-ID"
    access = spec.slurm or SlurmAccess()
    if access.job is not None:
        yield f"on the nodes of job {access.job}: nothing is submitted"
        return
    where = f" on {access.login}" if access.login else ""
    yield f"what would be submitted{where}:"
    yield f"    sbatch {shlex.join(arguments(spec, pool_id))}"
    for line in batch_script(spec, pool_id).replace(shlex.quote(KEEPER)[1:-1], "...").splitlines():
        yield f"    {line}"
