"""What is submitted for a pool: the arguments of sbatch and the batch script. Pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence

from skyward_nb.providers.far.keeper import KEEPER, PATIENCE
from skyward_nb.words.provider_access import ContainerRuntime, SlurmAccess
from skyward_nb.words.spec import PoolSpec

_NOTICE, _LEAST = 120, 60
"""Seconds before its time limit at which a job is told; and the least that a job has, as Slurm counts in minutes."""


def notice_of(limit: float | None) -> int:
    """Seconds before its end at which a job with this time limit is told: half of a short one is its own."""
    return _NOTICE if limit is None else min(_NOTICE, math.ceil(limit / 2))


def job_name(pool_id: str) -> str:
    """The name of a pool's job, by which it is found again."""
    return f"skyward-{pool_id}"


def keep_of(pool_id: str, job: str, node: str) -> str:
    """The keeper's folder on a node; nodes may share a machine, as in tests, and jobs a node."""
    return f"/tmp/.skyward-{pool_id}.{job}.{node}"  # noqa: S108 - the keeper makes it anew, for this user alone


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
        f"--signal=B:USR2@{notice_of(max(_LEAST, spec.ttl) if spec.ttl else None)}",
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
    whole = max(_LEAST, math.ceil(seconds))
    return f"{whole // 60}:{whole % 60:02}"


def batch_script(spec: PoolSpec, pool_id: str, runtime: ContainerRuntime | None = None) -> str:
    """The script of a pool's job: a keeper on each node, which is told when time is short."""
    access = spec.slurm or SlurmAccess()
    beside, after = _removal(access, pool_id, runtime, ["--ntasks-per-node=1"])
    lines = [
        "#!/bin/bash -l" if access.modules else "#!/bin/sh",
        f"# pool {pool_id} of skyward_nb: a keeper on each node, whose child is the pool's agent",
        "trap '' USR2",  # srun, too, ignores what comes before it can pass it on
        *([_ONCE] if _REQUEUE in access.extra else []),
        *_before(access),
        f"srun {' '.join(map(shlex.quote, step_arguments(spec, pool_id, runtime)))} &",
        "step=$!",
        *beside,
        "trap 'kill -USR2 $step' USR2",
        "while :; do wait $step; code=$?; kill -0 $step 2>/dev/null || break; done",
        *after,
        "exit $code",
    ]
    return "\n".join(lines) + "\n"


_REQUEUE = "--requeue"
_ONCE = 'scontrol update JobId="$SLURM_JOB_ID" Requeue=0'
"""Once begun, a job that loses its nodes ends: begun anew, it would wait there for a pool that has ended with its ranks."""

_WATCH = """keep="{keep}"
gone() {{
  tries=0
  while [ -d "$keep" ] && [ "$tries" -lt 100 ]; do tries=$((tries + 1)); sleep 0.1; done
  {remove}
  exit
}}
trap gone TERM
while :; do sleep 60 & wait $!; done"""
"""Removes the container of a job that is cancelled, preempted or out of time, once its keeper has ended: Slurm starts no step
then, and kills what is left 30 s later, unless the site says otherwise."""


def _removal(
    access: SlurmAccess, pool_id: str, runtime: ContainerRuntime | None, where: Sequence[str]
) -> tuple[list[str], list[str]]:
    """What is begun beside the keepers, and done after them, so that no container stays: by its name, pyxis keeps it unpacked."""
    if access.container is None or runtime != "pyxis":
        return [], []
    remove = f"enroot remove --force pyxis_{job_name(pool_id)}"
    keep = keep_of(pool_id, "$SLURM_JOB_ID", "$SLURMD_NODENAME")
    last = [*where, "--kill-on-bad-exit=0", "--export=ALL", "/bin/sh", "-c"]
    watch = shlex.join(["--overlap", "--mem=0", *last, _WATCH.format(keep=keep, remove=remove)])
    quiet = "</dev/null >/dev/null 2>&1"
    return (
        [f"srun {watch} {quiet} & watch=$!"],
        ["kill $watch 2>/dev/null", f"srun {shlex.join([*last, remove])} {quiet}"],
    )


def _before(access: SlurmAccess) -> Iterator[str]:
    for module in access.modules:
        yield f"module load {shlex.quote(module)} || exit"
    yield from access.before


def step_script(
    spec: PoolSpec,
    pool_id: str,
    job: str,
    nodes: Sequence[str],
    runtime: ContainerRuntime | None = None,
) -> str:
    """The script that starts keepers in a job that is there, as a step that stays when the script has ended.

    What the step says, and why there is none, goes to the file `$output`.
    """
    access = spec.slurm or SlurmAccess()
    where = [
        f"--jobid={job}",
        "--overlap",
        f"--nodes={len(nodes)}",
        f"--ntasks={len(nodes)}",
        f"--nodelist={','.join(nodes)}",
        "--mem=0",
        "--chdir=/",
        "--quiet",
    ]
    step = f"srun {shlex.join([*where, *step_arguments(spec, pool_id, runtime)])}"
    beside, after = _removal(access, pool_id, runtime, where)
    if after:
        step = f"/bin/sh -c {shlex.quote(chr(10).join([*beside, step, *after]))}"
    start = f'nohup {step} </dev/null >"$output" 2>&1 &'
    inner = "\n".join([*_before(access), start]) + "\n"
    return f"exec /bin/bash -lc {shlex.quote(inner)}" if access.modules else inner


def step_arguments(
    spec: PoolSpec, pool_id: str, runtime: ContainerRuntime | None = None
) -> list[str]:
    """The arguments of srun for the keepers: a step of one task on each node, none of which ends the others."""
    access = spec.slurm or SlurmAccess()
    folder = keep_of(pool_id, "$SLURM_JOB_ID", "$SLURMD_NODENAME")
    program = f'set -- "{folder}" {PATIENCE}\n{KEEPER}'
    options, begin = contained(access, pool_id, runtime)
    # From 22.05 on a step has not as many CPUs as its job was asked for, unless it asks itself.
    cpus = [f"--cpus-per-task={math.ceil(spec.cpus.amount)}"] if spec.cpus else []
    return [
        "--ntasks-per-node=1",
        *cpus,
        "--kill-on-bad-exit=0",
        "--export=ALL",
        *options,
        *begin,
        "/bin/sh",
        "-c",
        program,
    ]


_APPTAINER = (
    "image=$1; keep=$2; nv=; shift 2; "
    'is_ours() { [ -n "$(find "$keep" -prune -type d -user "$(id -u)" 2>/dev/null)" ] && [ -e "$keep/env" ]; }; '
    'if [ "$keep" ]; then tries=0; '
    'until is_ours || [ "$tries" -gt 300 ]; do tries=$((tries + 1)); sleep 0.1; done; '
    'skyward_outside=$(is_ours && . "$keep/env" 2>/dev/null; printf %s "$skyward_outside"); '
    "PATH=${skyward_outside:-$PATH}; fi; "
    'export skyward_outside="$PATH"; '
    "if [ -e /dev/nvidiactl ]; then nv=--nv; fi; "
    "for each in apptainer singularity; do "
    'command -v $each >/dev/null && exec $each exec $nv "$image" "$@"; done; '
    'echo "container=$image: srun here knows no --container-image (pyxis), and node $SLURMD_NODENAME has neither '
    'apptainer nor singularity: leave container= out, or ask your site" >&2; exit 77'
)
"""Arguments: the image, the keeper's folder or "", the command. Commands find apptainer where the keeper did: by the
path outside of its container, which modules may have changed. One line without `!`, single quotes and backslashes: a
login shell may be csh or fish."""


def contained(
    access: SlurmAccess, pool_id: str, runtime: ContainerRuntime | None, keep: str = ""
) -> tuple[list[str], list[str]]:
    """Arguments of srun, and the beginning of the command, that have a command run in the pool's container.

    Each command is in a container of its own, all of the same image, or, with pyxis, in that of the keeper. The node's
    `/tmp`, `/dev/shm` and the home are in it; `keep` is the keeper's folder, for all but the keeper itself. Source: https://github.com/NVIDIA/pyxis,
    apptainer-exec(1).
    """
    if access.container is None or runtime is None:
        return [], []
    if runtime == "pyxis":
        name = f"--container-name={job_name(pool_id)}"
        if keep:
            # The keeper alone makes the container: of two steps that do at once, pyxis has both fail.
            return [name, "--no-container-entrypoint"], []
        options = [
            f"--container-image={access.container}",
            name,
            "--container-mount-home",
            "--container-mounts=/tmp:/tmp,/dev/shm:/dev/shm",
            "--no-container-entrypoint",
        ]
        return options, []
    return [], ["/bin/sh", "-c", _APPTAINER, "container", access.container, keep]


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
    if access.container:
        yield f"    # {access.container}: by srun's --container-image where it knows that (pyxis), else as here"
    runtime = "apptainer" if access.container else None
    script = batch_script(spec, pool_id, runtime)
    for line in (
        script.replace(shlex.quote(_APPTAINER)[1:-1], "...")
        .replace(shlex.quote(KEEPER)[1:-1], "...")
        .splitlines()
    ):
        yield f"    {line}"
