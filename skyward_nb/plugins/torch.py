"""PyTorch: a process group over all ranks, the device set, threads shared out fairly.

The head's store listens on the socket the agent bound for it, on the address the other nodes
reach, and on no other. Source for the variables: torch's elastic agent.
"""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from skyward_nb.plugins.base import Place
from skyward_nb.words.info import InstanceInfo

_JOIN = timedelta(seconds=120)


@dataclass(frozen=True)
class TorchPlugin:
    """`torch`: `init_process_group` with nccl on GPUs, gloo on CPU."""

    name: str = "torch"
    requires: tuple[str, ...] = ("torch",)
    preload: tuple[str, ...] = (
        "torch",
        "torch.distributed",
        "torch.nn.parallel.distributed",
        "torch.optim",
        "torch._dynamo",
    )
    backends: tuple[str, ...] = ("gloo", "nccl")

    def env(self, info: InstanceInfo) -> dict[str, str]:
        """Gloo kept to loopback where all ranks share one machine."""
        local = all(peer.address.startswith("127.") for peer in info.peers)
        return {"GLOO_SOCKET_IFNAME": "lo"} if local else {}

    @contextmanager
    def enter(self, place: Place, options: dict[str, str]) -> Generator[None]:
        """Form the process group of this generation; raises what torch raises."""
        import torch
        import torch.distributed as dist

        info = place.info
        torch.set_num_threads(place.threads)
        on_gpu = info.accelerators > 0
        if on_gpu:
            torch.cuda.set_device(info.local_rank)
        backend = options.get("backend", "auto")
        if backend == "auto":
            backend = "nccl" if on_gpu else "gloo"
        store = dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage] - documented as public
            info.head_addr,
            info.head_port,
            info.world_size,
            is_master=info.is_head,
            timeout=_JOIN,
            wait_for_workers=False,
            master_listen_fd=_listening(place.rendezvous_fd),
        )
        dist.init_process_group(
            backend,
            store=dist.PrefixStore(f"generation{info.generation}", store),  # pyright: ignore[reportPrivateImportUsage]
            rank=info.rank,
            world_size=info.world_size,
        )
        try:
            yield
        finally:
            dist.destroy_process_group()


def _listening(descriptor: int | None) -> int | None:
    """Open the head's reserved socket for its peers; torch owns the descriptor from then on."""
    if descriptor is None:
        return None
    reserved = socket.socket(fileno=descriptor)
    reserved.listen()
    return reserved.detach()


PLUGIN = TorchPlugin()
