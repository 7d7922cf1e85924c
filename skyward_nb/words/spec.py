"""The spec of a pool: the one value that options become and providers read."""

from __future__ import annotations

from typing import Literal

import msgspec

from skyward_nb.words.accelerators import Accelerator
from skyward_nb.words.hosts import SSHAccess
from skyward_nb.words.image import Image
from skyward_nb.words.masking import masked_repr
from skyward_nb.words.mesh import Axes, spell_mesh
from skyward_nb.words.mig import slices_per_gpu
from skyward_nb.words.offers import Need, Spot
from skyward_nb.words.provider_access import (
    AWSAccess,
    KubernetesAccess,
    OnPreempt,
    RayAccess,
    SkyPilotAccess,
    SlurmAccess,
)
from skyward_nb.words.rank_limits import RankLimits
from skyward_nb.words.volume import Volume

Simulate = Literal["", "yes", "cuda"]
"""Whether ranks on CPU stand in for those on GPUs; with `cuda`, torch says that there are GPUs."""
IDLE_ELSEWHERE = 1800.0
"""Default lifetime of a pool on other machines without a client, in seconds."""


class PoolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Shape of a pool: `nodes` × `ranks_per_node` ranks; times in seconds.

    `ttl` is its maximum lifetime (None: no limit), `heartbeat` the longest silence of a machine before it is
    asked for an answer; with `keep` it outlives its notebook. `framework` has words of `frameworks.WORDS`, to
    which cells and functions add those that they need where it `adds_frameworks`; `collective_timeout` None
    means the framework's own. `mig` is the profile of slices that ranks get instead of whole accelerators;
    `partition` makes the slices. `memory_limit` (bytes) and `cpu_limit` (processors) hold for each rank. `env` has variables beside those of the `image`; without `cluster`, each node
    stands alone. Machines elsewhere have their environments in the folder `cache`, as its shell spells it, and trust
    the certificates of this machine's file `ca`, too. With `trust_local_users`, frameworks join machines that other people may log in to; with
    `only_values`, values of ranks are read as numbers, text, arrays and tables alone. `ssh` has the hosts of
    provider=ssh, `slurm` the access of provider=slurm, `kubernetes` that of provider=kubernetes, `ray` that of provider=ray, `skypilot` that of provider=sky, `aws` that of provider=aws, whose machines have these `cpus` and GB of `memory` and cost
    at most `max_cost` dollars in all, and each `max_hourly_cost` an hour; above `confirm_above` dollars an hour
    (None: no limit), the user is asked. `on_preempt` says whether reclaimed machines are replaced; `volumes` are
    folders of each of them. `checkpoint` is where names of ranks are kept, a folder or `s3://bucket/prefix`; with `resume`
    the first ranks begin with the newest that are there.
    """

    name: str = "default"
    provider: str = "local"
    ssh: SSHAccess | None = None
    aws: AWSAccess | None = None
    slurm: SlurmAccess | None = None
    kubernetes: KubernetesAccess | None = None
    ray: RayAccess | None = None
    skypilot: SkyPilotAccess | None = None
    cache: str | None = None
    ca: str | None = None
    trust_local_users: bool = False
    only_values: bool = False
    nodes: int = 1
    ranks_per_node: int | None = None
    accelerator: Accelerator | None = None
    mig: str | None = None
    partition: bool = False
    cpus: Need | None = None
    memory: Need | None = None
    spot: Spot = "no"
    max_cost: float | None = None
    max_hourly_cost: float | None = None
    confirm_above: float | None = 5.0
    on_preempt: OnPreempt = "tell"
    checkpoint: str = ""
    resume: bool = False
    simulate: Simulate = ""
    framework: tuple[str, ...] = ()
    adds_frameworks: bool = False
    backend: str = "auto"
    collective_timeout: float | None = None
    mesh: Axes = ()
    image: Image = Image()
    env: dict[str, str] = {}
    memory_limit: int | None = None
    cpu_limit: int | None = None
    cluster: bool = True
    volumes: tuple[Volume, ...] = ()
    idle: float = 600.0
    grace: float = 2.0
    ttl: float | None = None
    keep: bool = False
    heartbeat: float = 2.0

    def __repr__(self) -> str:
        return masked_repr(self)

    @property
    def is_elsewhere(self) -> bool:
        """Whether its machines are other ones than this one."""
        return self.provider != "local"

    @property
    def variables(self) -> dict[str, str]:
        """Variables of the ranks: the image's, and over them those of `env`."""
        return {**self.image.env, **self.env}

    @property
    def real_accelerator(self) -> Accelerator | None:
        """The accelerators that each node must have; None where none are asked for, or they are simulated."""
        return None if self.simulate else self.accelerator

    @property
    def checkpoints(self) -> str:
        """Where the checkpoints of this pool's name are; "": nowhere."""
        return f"{self.checkpoint}/{self.name}" if self.checkpoint else ""

    @property
    def limits(self) -> RankLimits:
        """The limits of each rank."""
        return RankLimits(self.memory_limit, self.cpu_limit)

    @property
    def slots(self) -> int:
        """Ranks on each node: as requested, else one per accelerator or slice, else 1."""
        return self.devices or 1 if self.ranks_per_node is None else self.ranks_per_node

    @property
    def devices(self) -> int:
        """Accelerators of each node, or their slices; raises `OptionError` if those are unknown."""
        if self.accelerator is None:
            return 0
        slices = slices_per_gpu(self.mig, self.accelerator) if self.mig else 1
        return self.accelerator.count * slices

    @property
    def world_size(self) -> int:
        """Ranks in the whole pool."""
        return self.nodes * self.slots

    @property
    def devices_words(self) -> str:
        """The accelerators of a node in words, and whether they are simulated; empty where there are none."""
        if not self.accelerator:
            return ""
        cut = f" cut into {self.mig}" if self.mig else ""
        return f"{self.accelerator}{cut}{' simulated on CPU' * bool(self.simulate)}"

    def __str__(self) -> str:
        parts = [f"{self.world_size} rank{'s' * (self.world_size != 1)}"]
        alone = f" that stand{'s' * (self.nodes == 1)} alone" * (not self.cluster)
        # Nodes of this machine are named only where they say more than the ranks do.
        if self.is_elsewhere or alone or 1 < self.nodes < self.world_size:
            parts[0] += f" on {self.nodes} node{'s' * (self.nodes != 1)}{alone}"
        if devices := self.devices_words:
            parts.append(devices)
        if self.framework:
            parts.append(",".join(self.framework))
        if self.mesh:
            parts.append(f"mesh {spell_mesh(self.mesh)}")
        if limits := str(self.limits):
            parts.append(limits)
        return f"{', '.join(parts)} ({self.provider})"
