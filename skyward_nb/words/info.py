"""The place of a rank in its pool: `InstanceInfo`, and the environment variables for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from skyward_nb.words.mesh import Axes

if TYPE_CHECKING:
    from skyward_nb.words.spec import PoolSpec

COMPUTE_POOL = "COMPUTE_POOL"
LOOPBACK = "127.0.0.1"
RENDEZVOUS = "rendezvous"
"""The name of the port where a node's ranks meet, if the node stands alone."""


class Peer(msgspec.Struct, frozen=True):
    """One node of the pool and the address other nodes reach it at.

    `ports` are reserved there for frameworks whose ranks listen, one for each rank of the node.
    `interface` is the name of the network interface with the address.
    """

    node: int
    address: str
    ports: dict[str, tuple[int, ...]] = {}
    interface: str = ""


class InstanceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's place: which of `world_size` ranks, on which of `total_nodes` nodes.

    `worker` is its slot in the node and equals `local_rank`; `accelerators` counts those of
    the node, or the slices that its ranks have, 0 on CPU; `generation` counts the process groups of the pool from 1; `mesh`
    is the value of mesh=; `simulated` accelerators are not there, and the CPU stands in for them. Where nodes stand alone (`cluster` False), `rank` and `world_size` count
    the node's own ranks, which have no head and meet at the node's address.
    """

    node: int = 0
    total_nodes: int = 1
    worker: int = 0
    workers_per_node: int = 1
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    head_addr: str = LOOPBACK
    head_port: int = 0
    accelerators: int = 0
    accelerator: str | None = None
    peers: tuple[Peer, ...] = (Peer(0, LOOPBACK),)
    job_id: str = ""
    generation: int = 0
    mesh: Axes = ()
    cluster: bool = True
    simulated: bool = False

    @property
    def is_head(self) -> bool:
        """Whether this is rank 0; never where nodes stand alone."""
        return self.rank == 0 and self.cluster

    @property
    def total_accelerators(self) -> int:
        """The accelerators of all nodes."""
        return self.accelerators * self.total_nodes

    @property
    def real_accelerators(self) -> int:
        """Accelerators of the node that are there."""
        return 0 if self.simulated else self.accelerators

    @property
    def pool_rank(self) -> int:
        """The number of this rank among those of all nodes, even if nodes stand alone."""
        return self.node * self.workers_per_node + self.worker


def place(
    spec: PoolSpec, peers: tuple[Peer, ...], port: int, job_id: str, generation: int
) -> tuple[InstanceInfo, ...]:
    """Give every rank of `spec` its place; `peers` has one for each node, the head's first."""
    devices = spec.slots if spec.mig else spec.devices
    return tuple(
        InstanceInfo(
            node=rank // spec.slots,
            total_nodes=spec.nodes,
            worker=rank % spec.slots,
            workers_per_node=spec.slots,
            rank=rank,
            world_size=spec.world_size,
            local_rank=rank % spec.slots,
            head_addr=peers[0].address,
            head_port=port,
            accelerators=devices,
            accelerator=spec.accelerator.name if spec.accelerator else None,
            peers=peers,
            job_id=job_id,
            generation=generation,
            mesh=spec.mesh,
            cluster=spec.cluster,
            simulated=bool(spec.simulate),
        )
        for rank in range(spec.world_size)
    )


def as_seen(info: InstanceInfo) -> InstanceInfo:
    """The place for code on the rank: if nodes stand alone, in the world of its node."""
    if info.cluster:
        return info
    own = next(peer for peer in info.peers if peer.node == info.node)
    (port, *_) = own.ports.get(RENDEZVOUS, (info.head_port,))
    return replace(
        info,
        rank=info.local_rank,
        world_size=info.workers_per_node,
        head_addr=own.address,
        head_port=port,
    )


def under_torchrun(environ: Mapping[str, str]) -> InstanceInfo | None:
    """The place of a worker that torchrun has started, by its variables; None in another process."""
    numbers = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_PORT")
    if "TORCHELASTIC_RUN_ID" not in environ or not all(
        environ.get(name, "").isdecimal() for name in numbers
    ):
        return None
    rank, world, local, each, node, port = (int(environ[name]) for name in numbers)
    head = environ.get("MASTER_ADDR", LOOPBACK)
    return InstanceInfo(
        node=node,
        total_nodes=max(1, world // max(1, each)),
        worker=local,
        workers_per_node=each,
        rank=rank,
        world_size=world,
        local_rank=local,
        head_addr=head,
        head_port=port,
        peers=(Peer(0, head),),
        job_id=environ["TORCHELASTIC_RUN_ID"],
    )


def environment(info: InstanceInfo) -> dict[str, str]:
    """Variables every rank has: what `torchrun` sets, `NODE_RANK`, and SkyPilot's set.

    Sources: torch `elastic/agent/server/local_elastic_agent.py` (`_start_workers`) and
    SkyPilot's "distributed jobs" page. Of what `torchrun` sets, three are about its own agent and are left
    out: `TORCHELASTIC_USE_AGENT_STORE`, with which rank 0 would not host the store,
    `TORCHELASTIC_ERROR_FILE`, and `TORCHELASTIC_SIGNALS_TO_HANDLE`.
    """
    info = as_seen(info)
    text = msgspec.json.encode(info).decode()
    each = {
        COMPUTE_POOL: text,
        "MASTER_ADDR": info.head_addr,
        "MASTER_PORT": info.head_port,
        "WORLD_SIZE": info.world_size,
        "RANK": info.rank,
        "LOCAL_RANK": info.local_rank,
        "LOCAL_WORLD_SIZE": info.workers_per_node,
        "NODE_RANK": info.node,
        "GROUP_RANK": info.node if info.cluster else 0,
        "GROUP_WORLD_SIZE": info.total_nodes if info.cluster else 1,
        "ROLE_NAME": "default",
        "ROLE_RANK": info.rank,
        "ROLE_WORLD_SIZE": info.world_size,
        "TORCHELASTIC_RESTART_COUNT": info.generation - 1,
        "TORCHELASTIC_MAX_RESTARTS": 0,
        "TORCHELASTIC_RUN_ID": info.job_id,
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1,
        "SKYPILOT_NODE_IPS": "\n".join(peer.address for peer in info.peers),
        "SKYPILOT_NUM_NODES": info.total_nodes,
        "SKYPILOT_NODE_RANK": info.node,
        "SKYPILOT_NUM_GPUS_PER_NODE": info.accelerators,
        "SKYPILOT_TASK_ID": info.job_id,
    }
    return {key: str(value) for key, value in each.items()}
