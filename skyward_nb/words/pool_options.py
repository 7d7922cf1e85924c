"""The options of a pool as values: `PoolOptions`, and `Options` and `Worker`, which only Python code writes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from skyward_nb.words.accelerators import Accelerator
from skyward_nb.words.errors import OptionError
from skyward_nb.words.frameworks import AUTO
from skyward_nb.words.image import Image
from skyward_nb.words.masking import masked_repr
from skyward_nb.words.mesh import Axes
from skyward_nb.words.offers import Need, Spot
from skyward_nb.words.provider_access import (
    AWSAccess,
    KubernetesAccess,
    OnPreempt,
    RayAccess,
    SkyPilotAccess,
    SlurmAccess,
)
from skyward_nb.words.spec import Simulate
from skyward_nb.words.volume import Volume

T = TypeVar("T")
Stated: TypeAlias = T | UnsetType


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How the nodes of a pool belong together.

    With `cluster` False each node stands alone: its ranks are a separate world, without a head, and plugins
    that join all ranks are refused. Raises `OptionError` for other values than True and False.
    """

    cluster: bool = True

    def __post_init__(self) -> None:
        given: Any = self.cluster
        if not isinstance(given, bool):
            raise OptionError("cluster", f"cluster={given!r}: write True or False")


class Worker(msgspec.Struct, frozen=True):
    """How many calls each node runs at once: `concurrency`, each in a process of its own.

    Each of these processes is a rank, with its own namespace, and shares no memory with the others. Raises
    `OptionError` for other values.
    """

    concurrency: int = 1
    executor: Literal["auto", "process"] = "auto"

    def __post_init__(self) -> None:
        given: Any = self.concurrency
        if not isinstance(given, int) or isinstance(given, bool) or given < 1:
            raise OptionError(
                "concurrency", f"concurrency={given!r}: write a whole number of 1 or more"
            )
        if self.executor not in ("auto", "process"):
            raise OptionError(
                "executor",
                f"executor={self.executor!r}: there is 'process' alone, as each call has a process of its own",
            )


class PoolOptions(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The options that are stated of a pool, by their names; the others are UNSET.

    None is a value: that of `accelerator=none` and `ranks_per_node=auto`. `image` is the name of an `Image`
    until that is looked up in the notebook. `partition` is Slurm's if it is a
    text. Only Python code states `aws`, `slurm`, `kubernetes`, `ray`, `skypilot` and `adds_frameworks`.
    """

    pool: Stated[str] = UNSET
    nodes: Stated[int] = UNSET
    ranks_per_node: Stated[int | None] = UNSET
    accelerator: Stated[Accelerator | None] = UNSET
    mig: Stated[str | None] = UNSET
    partition: Stated[bool | str] = UNSET
    simulate: Stated[Simulate] = UNSET
    provider: Stated[str] = UNSET
    hosts: Stated[tuple[str, ...]] = UNSET
    user: Stated[str] = UNSET
    port: Stated[int] = UNSET
    key: Stated[str] = UNSET
    config: Stated[str] = UNSET
    trust: Stated[tuple[str, ...]] = UNSET
    cache: Stated[str] = UNSET
    ca: Stated[str] = UNSET
    trust_local_users: Stated[bool] = UNSET
    aws: Stated[AWSAccess] = UNSET
    slurm: Stated[SlurmAccess] = UNSET
    kubernetes: Stated[KubernetesAccess] = UNSET
    ray: Stated[RayAccess] = UNSET
    skypilot: Stated[SkyPilotAccess] = UNSET
    login: Stated[str] = UNSET
    job: Stated[str] = UNSET
    account: Stated[str] = UNSET
    qos: Stated[str] = UNSET
    constraint: Stated[str] = UNSET
    reservation: Stated[str] = UNSET
    gres: Stated[str] = UNSET
    exclusive: Stated[bool] = UNSET
    extra: Stated[tuple[str, ...]] = UNSET
    module: Stated[tuple[str, ...]] = UNSET
    container: Stated[str] = UNSET
    address: Stated[str] = UNSET
    resources: Stated[tuple[tuple[str, float], ...]] = UNSET
    waits: Stated[bool] = UNSET
    infra: Stated[str] = UNSET
    context: Stated[str] = UNSET
    namespace: Stated[str] = UNSET
    queue: Stated[str] = UNSET
    service_account: Stated[str] = UNSET
    cpus: Stated[Need] = UNSET
    memory: Stated[Need] = UNSET
    region: Stated[tuple[str, ...]] = UNSET
    zones: Stated[tuple[str, ...]] = UNSET
    instance_type: Stated[str] = UNSET
    spot: Stated[Spot] = UNSET
    on_preempt: Stated[OnPreempt] = UNSET
    checkpoint: Stated[str] = UNSET
    resume: Stated[bool] = UNSET
    max_cost: Stated[float] = UNSET
    max_hourly_cost: Stated[float] = UNSET
    confirm_above: Stated[float] = UNSET
    yes: Stated[bool] = UNSET
    ami: Stated[str] = UNSET
    subnet: Stated[tuple[str, ...]] = UNSET
    security_group: Stated[str] = UNSET
    public_ip: Stated[bool] = UNSET
    jump: Stated[str] = UNSET
    caller: Stated[tuple[str, ...]] = UNSET
    tags: Stated[tuple[tuple[str, str], ...]] = UNSET
    disk: Stated[int] = UNSET
    throughput: Stated[int] = UNSET
    instance_profile: Stated[str] = UNSET
    capacity_block: Stated[str] = UNSET
    warm: Stated[float] = UNSET
    aws_profile: Stated[str] = UNSET
    framework: Stated[tuple[str, ...]] = UNSET
    adds_frameworks: Stated[bool] = UNSET
    backend: Stated[str] = UNSET
    collective_timeout: Stated[float] = UNSET
    mesh: Stated[Axes] = UNSET
    image: Stated[str | Image] = UNSET
    python: Stated[str | None] = UNSET
    pip: Stated[tuple[str, ...]] = UNSET
    apt: Stated[tuple[str, ...]] = UNSET
    env: Stated[dict[str, str]] = UNSET
    memory_limit: Stated[int | None] = UNSET
    cpu_limit: Stated[int | None] = UNSET
    cluster: Stated[bool] = UNSET
    volumes: Stated[tuple[Volume, ...]] = UNSET
    idle: Stated[float] = UNSET
    ttl: Stated[float] = UNSET
    keep: Stated[bool] = UNSET
    heartbeat: Stated[float] = UNSET
    grace: Stated[float] = UNSET

    def __repr__(self) -> str:
        return masked_repr(self, brief=True)

    @property
    def name(self) -> str | None:
        """The name of the pool, if it is stated."""
        return self.pool or None

    @cached_property
    def stated(self) -> tuple[str, ...]:
        """The names of the options that are stated, which each cell asks for many times."""
        return tuple(name for name in self.__struct_fields__ if getattr(self, name) is not UNSET)

    def changed(self, **changes: Any) -> PoolOptions:
        """These options with changes; UNSET removes one."""
        return msgspec.structs.replace(self, **changes)

    def over(self, weaker: PoolOptions) -> PoolOptions:
        """These options, completed by weaker ones."""
        if not weaker.stated:
            return self
        return weaker.changed(**{name: getattr(self, name) for name in self.stated})

    def without(self, names: Iterable[str]) -> PoolOptions:
        """These options without those of these names."""
        return self.changed(**dict.fromkeys(names, UNSET))

    @property
    def chooses_frameworks(self) -> bool:
        """Whether frameworks are those that code imports: `framework=auto`, or nothing is stated."""
        return self.framework is UNSET or self.framework == AUTO

    def with_chosen(self, words: tuple[str, ...]) -> PoolOptions:
        """The same with the frameworks that were chosen, to which others may be added."""
        return self.changed(framework=words, adds_frameworks=True)
