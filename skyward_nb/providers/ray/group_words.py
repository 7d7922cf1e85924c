"""What a pool asks of Ray, and where its group stands, in words. Pure."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

from skyward_nb.providers.far.keeper import KEEPER, PATIENCE
from skyward_nb.providers.ray.messages import ClusterNode, GroupState, StartedActor
from skyward_nb.words.provider_access import RayAccess
from skyward_nb.words.spec import PoolSpec

CREATED = "CREATED"
_INFEASIBLE = "INFEASIBLE"
_TYPE = "accelerator_type:"
_A_BIT = 0.001
"""Of the resource that names a node's accelerators: Ray gives each node 1 of it."""
_GIB = 1 << 30


def group_name(pool_id: str) -> str:
    """The name of a pool's placement group, by which it is found again."""
    return f"skyward-{pool_id}"


def keep_of(pool_id: str, number: int | str) -> str:
    """The keeper's folder on the node of an actor; several nodes may be on one machine, as in tests."""
    return f"/tmp/.skyward-{pool_id}.{number}"  # noqa: S108 - the keeper makes it anew, for this user alone


def keeper_program(pool_id: str) -> str:
    """What /bin/sh runs on a node: the keeper, with the actor's number for `{number}`."""
    keep = shlex.quote(keep_of(pool_id, "{number}"))
    return f"set -- {keep} {PATIENCE}\n{KEEPER}"


def bundle(spec: PoolSpec) -> dict[str, float]:
    """The resources of each node, by Ray's names."""
    access = spec.ray or RayAccess()
    asked: dict[str, float] = {"CPU": spec.cpus.amount if spec.cpus else 1.0}
    if spec.memory:
        asked["memory"] = float(int(spec.memory.amount * _GIB))
    if (gpu := spec.real_accelerator) is not None:
        asked |= {"GPU": float(gpu.count), f"{_TYPE}{gpu.name}": _A_BIT}
    return {name: value for name, value in (asked | dict(access.resources)).items() if value}


def spell_bundle(asked: dict[str, float]) -> str:
    """A bundle in words: `1 CPU, 4 GPU (A100)`."""
    kinds = [name.removeprefix(_TYPE) for name in asked if name.startswith(_TYPE)]
    words: list[str] = []
    for name, value in asked.items():
        if name == "memory":
            words.append(f"{value / _GIB:g} GB of memory")
        elif not name.startswith(_TYPE):
            kind = f" ({', '.join(kinds)})" if name == "GPU" and kinds else ""
            words.append(f"{value:g} {name}{kind}")
    return ", ".join(words)


def why_infeasible(state: GroupState, spec: PoolSpec) -> str:
    """Why no node of the cluster, or too few, can ever hold a group; "" if that is not so."""
    if state.scheduling != _INFEASIBLE:
        return ""
    asked = bundle(spec)
    fitting = sum(_holds(node, asked) for node in state.nodes)
    nodes = (
        f"{spec.nodes} nodes with {spell_bundle(asked)} each are"
        if spec.nodes > 1
        else f"a node with {spell_bundle(asked)} is"
    )
    return (
        f"{nodes} asked for, and {_count(fitting)} of the cluster's {_count(len(state.nodes))} "
        f"can have that much ({spell_nodes(state.nodes)}): ask for less with nodes=, accelerator=, cpus= or memory=. Where an autoscaler brings "
        "such nodes, wait for it: `waits`, in Python sky.Ray(waits=True)"
    )


def _holds(node: ClusterNode, asked: dict[str, float]) -> bool:
    return all(node.resources.get(name, 0) >= value for name, value in asked.items())


def _count(number: int) -> str:
    return "none" if number == 0 else str(number)


def spell_nodes(nodes: Sequence[ClusterNode]) -> str:
    """What the nodes of a cluster have, in words: `2 × 8 CPU, 4 GPU (A100)`."""
    shown = Counter(spell_bundle(_shown(node)) for node in nodes)
    return "; ".join(f"{many} × {what}" for what, many in shown.most_common(5)) or "it has none"


def _shown(node: ClusterNode) -> dict[str, float]:
    """What a person asks for by name; not addresses, and not the object store."""
    hidden = ("node:", "object_store_memory", "memory", "bundle")
    own = {name: value for name, value in node.resources.items() if not name.startswith(hidden)}
    return dict(sorted(own.items(), key=lambda each: each[0] != "CPU"))


def spell_pending(state: GroupState, spec: PoolSpec) -> str:
    """Where a group stands that is not placed yet: the state of a pool that waits for it."""
    asked = spell_bundle(bundle(spec))
    what = f"{spec.nodes} nodes with {asked} each" if spec.nodes > 1 else f"a node with {asked}"
    if state.scheduling == _INFEASIBLE:
        return f"Ray waits for its autoscaler to bring {what}: the cluster has {spell_nodes(state.nodes)}"
    fitting = sum(_holds(node, bundle(spec)) for node in state.nodes)
    if fitting < spec.nodes:
        return f"Ray waits for {what}: {fitting} of {spec.nodes} are in the cluster; an autoscaler may bring others"
    return f"Ray waits for {what}: they are in the cluster, and in use"


def names_of(actors: Sequence[StartedActor]) -> list[str]:
    """A name of each node, by host; nodes of one host have a part of Ray's id, too."""
    hosts = Counter(actor.host for actor in actors)
    return [
        actor.host if hosts[actor.host] == 1 else f"{actor.host}-{actor.node[:6]}"
        for actor in actors
    ]


def dry_run_lines(spec: PoolSpec) -> Iterator[str]:
    """What a pool would ask Ray for."""
    access = spec.ray or RayAccess()
    yield f"what would be asked of the Ray cluster at address={access.address}:"
    yield f"    placement_group({[bundle(spec)] * spec.nodes!r}, strategy='STRICT_SPREAD', lifetime='detached')"
    yield f"    {spec.nodes} actor{'s' * (spec.nodes > 1)}, one in each bundle, of {spell_bundle(bundle(spec))}"
