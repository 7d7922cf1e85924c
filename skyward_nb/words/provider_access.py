"""A pool's use of Slurm, Kubernetes, Ray, SkyPilot or AWS, each as one value; of hosts, it is `hosts.SSHAccess`. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

# ── Slurm ────────────────────────────────────────────────────────────────────────────────

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


# ── Kubernetes ───────────────────────────────────────────────────────────────────────────

GPU_KEY = "nvidia.com/gpu"
"""The name by which Kubernetes counts NVIDIA's GPUs."""


class KubernetesAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How pods are asked of Kubernetes; what is None is left out, and kubectl's or the cluster's own default holds.

    `context` and `namespace` are kubectl's, `image` is the container image of the pods (None: one with this Python),
    `queue` a LocalQueue of Kueue, `gpu_key` the name by which GPUs are counted. `pod_overrides` is the text of a JSON
    object, which is laid over the pod's spec; "" for none.
    """

    context: str | None = None
    namespace: str | None = None
    image: str | None = None
    queue: str | None = None
    service_account: str | None = None
    gpu_key: str = GPU_KEY
    pod_overrides: str = ""


def is_container_image(text: str) -> bool:
    """Whether the text of `image=` is a container image, as `python:3.12`, `me/torch`; else it is a variable's name."""
    return any(mark in text for mark in ":/@")


# ── Ray ──────────────────────────────────────────────────────────────────────────────────

AUTO_ADDRESS = "auto"
"""Of `address=`: the cluster that this machine is a node of, or the one that `RAY_ADDRESS` names."""


class RayAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at `address`, and further `resources` of each node, by Ray's names.

    `python` is an interpreter that has Ray; None: this one. With `waits`, a group that no node can hold now is
    waited for.
    """

    address: str = AUTO_ADDRESS
    resources: tuple[tuple[str, float], ...] = ()
    python: str | None = None
    waits: bool = False


# ── SkyPilot ─────────────────────────────────────────────────────────────────────────────


class SkyPilotAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Where SkyPilot is to rent: `infra` as it writes it (`gcp`, `gcp/us-central1`), None: wherever it is cheapest.

    `executable` is its program `sky`, None: that of PATH. `image_id` is an image of the cloud or `docker:IMAGE`,
    `disk` is in GB, `instance_type` the cloud's own name.
    """

    infra: str | None = None
    executable: str | None = None
    instance_type: str | None = None
    image_id: str | None = None
    disk: int | None = None


# ── AWS ──────────────────────────────────────────────────────────────────────────────────

Placement = Literal["auto", "no"]
SSM = "ssm"
"""The `jump` of AWS's Session Manager."""
LEAST_WARM = 600.0
"""Seconds for which machines are stopped at least: their start takes minutes, in which no timer should end them."""
MOST_WARM = 30 * 86_400.0
"""Seconds for which machines are stopped at most: nobody remembers them for longer, and their disks cost."""
IMAGE_ID = r"ami-[0-9a-f]{8,17}"
IMAGE_NAME = r"(?!ami-)[A-Za-z0-9][A-Za-z0-9._-]{0,59}"
"""The form of names of baked images; EC2's own names, which have more characters, begin with `sky-`."""
OnPreempt = Literal["tell", "replace"]
"""Whether a reclaimed machine is only reported, or also replaced."""


class AWSAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Where machines may be rented, and with which resources; None means a default.

    `regions` are alternatives to `region`, `zones` the only allowed ones; `user` logs in to the `ami`, which is an id, or
    the name of a baked image;
    `profile` is one of AWS's configuration, `disk` GB of gp3 with
    `throughput` MiB/s. With `placement` "auto", nodes are put side by
    side if their type allows it. `endpoint` is another server with EC2's interface. `instance_profile` is the role
    of machines, by the name or ARN of its profile.

    `subnet` has subnets, one for each zone; `public_ip` None: as they say. `jump` is a host on the way to machines, or
    `SSM`; `caller` has the networks from which they are reached. `reservation` and `capacity_block` are ids.

    `warm` is how long machines are stopped at the pool's end, in seconds, before they end.
    """

    region: str | None = None
    regions: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    instance_type: str | None = None
    ami: str | None = None
    user: str | None = None
    subnet: tuple[str, ...] | None = None
    security_group: str | None = None
    profile: str | None = None
    placement: Placement = "auto"
    disk: int = 100
    throughput: int | None = None
    endpoint: str | None = None
    instance_profile: str | None = None
    public_ip: bool | None = None
    jump: str | None = None
    caller: tuple[str, ...] = ()
    tags: tuple[tuple[str, str], ...] = ()
    reservation: str | None = None
    capacity_block: str | None = None
    warm: float | None = None


def is_image_id(asked: str) -> bool:
    """Whether an `ami` is EC2's id, and not the name of a baked image."""
    return asked.startswith("ami-")
