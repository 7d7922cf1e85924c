"""What SkyPilot is asked for: the arguments of `sky launch`, and the task. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import msgspec

from skyward_nb.providers.far.keeper import KEEPER, PATIENCE
from skyward_nb.words.provider_access import SkyPilotAccess
from skyward_nb.words.spec import PoolSpec

AUTOSTOP = 1
"""Minutes after the end of the keepers in which SkyPilot takes the machines down."""


def cluster_name(pool_id: str) -> str:
    """The name of a pool's cluster, by which it is found again."""
    return f"skyward-{pool_id.replace('_', '-')}"


def host_names(cluster: str, nodes: int) -> tuple[str, ...]:
    """The names of a cluster's machines in the SSH config that SkyPilot writes, the head first."""
    return (cluster, *(f"{cluster}-worker{number}" for number in range(1, nodes)))


def keep_of(pool_id: str, node: int | str) -> str:
    """The keeper's folder on a machine; several may be one, as in tests."""
    return f"/tmp/.skyward-{pool_id}.{node}"  # noqa: S108 - the keeper makes it anew, for this user alone


def task(pool_id: str) -> bytes:
    """The task file of a cluster: JSON, which YAML includes. Its `run` is the keeper, on each machine."""
    keep = keep_of(pool_id, "$SKYPILOT_NODE_RANK")
    program = f'set -- "{keep}" {PATIENCE}\n{KEEPER}'
    return msgspec.json.encode({"run": f"exec /bin/sh -c {shlex.quote(program)}\n"})


def asked(spec: PoolSpec) -> list[str]:
    """The arguments that say what to rent: only what was asked for."""
    access = spec.skypilot or SkyPilotAccess()
    gpu = spec.real_accelerator
    words = {
        "infra": access.infra,
        "instance-type": access.instance_type,
        "image-id": access.image_id,
        "disk-size": access.disk,
        "gpus": f"{gpu.name}:{gpu.count}" if gpu else None,
        "cpus": spec.cpus,
        "memory": spec.memory,
    }
    given = [f"--{name}={value}" for name, value in words.items() if value is not None]
    return [
        f"--num-nodes={spec.nodes}",
        *given,
        *(["--use-spot"] if spec.spot == "yes" else []),
    ]


def launch_arguments(spec: PoolSpec, pool_id: str, task_file: str) -> list[str]:
    """The arguments of `sky` that launch a pool's cluster."""
    return [
        *("launch", "--yes", "--detach-run", f"--cluster={cluster_name(pool_id)}"),
        *("--down", f"--idle-minutes-to-autostop={AUTOSTOP}"),
        *asked(spec),
        task_file,
    ]


def plan_arguments(spec: PoolSpec, task_file: str) -> list[str]:
    """The arguments of `sky` that show what it would rent, and at which price."""
    return ["launch", "--yes", "--dryrun", *asked(spec), task_file]


def dry_run_lines(spec: PoolSpec) -> Iterator[str]:
    """The command that a pool would be made with."""
    yield "what would be run:"
    yield f"    sky {shlex.join(launch_arguments(spec, f'{spec.name}-ID', 'TASK'))}"
