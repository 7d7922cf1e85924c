"""PyTorch: a process group over all ranks, the device set, threads shared out fairly.

The head's store listens on the socket the agent bound for it, on the address the other nodes
reach, and on no other. Source for the variables: torch's elastic agent.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from skyward_nb.plugins.base import Place, PlainPlugin, check_mesh
from skyward_nb.plugins.torch_group import DefaultGroup
from skyward_nb.plugins.wires import Wires, await_listener
from skyward_nb.runtime.groups import entered
from skyward_nb.words.info import InstanceInfo
from skyward_nb.words.spec import PoolSpec

_JOIN = timedelta(seconds=120)
_wires = Wires()


@dataclass(frozen=True)
class TorchPlugin(PlainPlugin):
    """`torch`: `init_process_group` with nccl on GPUs, gloo on CPU."""

    def options(self, spec: PoolSpec, variant: str) -> dict[str, str]:
        """`backend`, and `timeout` of its collectives in seconds."""
        del variant
        check_mesh(spec, spec.world_size, "ranks")
        timeout = spec.collective_timeout
        return {"backend": spec.backend} | ({"timeout": str(timeout)} if timeout else {})

    def preload(self, options: dict[str, str]) -> tuple[str, ...]:
        """What a first step of training would import."""
        del options
        return (
            "torch",
            "torch.distributed",
            "torch.nn.parallel.distributed",
            "torch.optim",
            "torch._dynamo",
        )

    def env(self, info: InstanceInfo, options: dict[str, str]) -> dict[str, str]:
        """Gloo kept to loopback where all ranks share one machine."""
        del options
        local = all(peer.address.startswith("127.") for peer in info.peers)
        return {"GLOO_SOCKET_IFNAME": "lo"} if local else {}

    @contextmanager
    def enter(self, place: Place, options: dict[str, str]) -> Generator[None]:
        """Form the process group of this generation; raises what torch raises."""
        import torch
        import torch.distributed as dist

        info = place.info
        torch.set_num_threads(place.threads)
        backend = options.get("backend", "auto")
        if info.accelerators > 0:
            torch.cuda.set_device(info.local_rank % torch.cuda.device_count())
            backend = "nccl" if backend == "auto" else backend
        backend = "gloo" if backend == "auto" else backend
        timeout = timedelta(seconds=float(options["timeout"])) if "timeout" in options else None
        _wires.forget(info.head_port)
        with _groups_are_known():
            if not info.is_head:
                await_listener(info.head_addr, info.head_port, _JOIN.total_seconds())
            store = dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage] - documented as public
                info.head_addr,
                info.head_port,
                info.world_size,
                is_master=info.is_head,
                timeout=_JOIN,
                wait_for_workers=False,
                master_listen_fd=_listening(place.rendezvous_fd),
            )
            group = DefaultGroup(info, store, backend, timeout)
            del store
            entered[self.name] = group
            try:
                with group.asked_by_code():
                    yield
            finally:
                del entered[self.name], group
                # What still waits on a peer would keep the group from ending.
                self.cut()
                if dist.is_initialized():
                    dist.destroy_process_group()

    def cut(self) -> bool:
        """Shut gloo's connections and the store's, and abort NCCL's communicators."""
        found = _wires.cut()
        for group, backend in _groups():
            if "nccl" in backend:
                with contextlib.suppress(Exception):
                    _distributed()._abort_process_group(group)
                    found = True
        return found

    def steps(self, ended: str) -> dict[str, int]:
        """The sequence number of each group, by the name that all of its ranks know it by."""
        del ended
        try:
            return {g.group_name: g._get_sequence_number_for_group() for g, _ in _groups()}
        except Exception:  # noqa: BLE001 - groups of the user's own backends need not count
            return {}


def _distributed() -> Any:
    """The module that keeps the process groups, once it is imported."""
    return sys.modules.get("torch.distributed.distributed_c10d")


def _groups() -> list[tuple[Any, str]]:
    """The process groups of this rank, in the order they were made, and their backends."""
    module = _distributed()
    if module is None:
        return []
    return [(group, str(backend)) for group, (backend, _) in list(module._world.pg_map.items())]


@contextmanager
def _groups_are_known() -> Generator[None]:
    """Meanwhile, what is connected for a new group is known as such: `new_group`, `split_group`.

    All of them are made by one function of torch, which opens the connections before it returns.
    """
    module = _distributed()
    make = getattr(module, "_new_process_group_helper", None)
    if make is None:
        yield
        return

    def _new_process_group_helper(*args: Any, **kwargs: Any) -> Any:
        return _wires.during(lambda: make(*args, **kwargs))

    module._new_process_group_helper = _new_process_group_helper
    try:
        yield
    finally:
        module._new_process_group_helper = make


def _listening(descriptor: int | None) -> int | None:
    """Open the head's reserved socket for its peers; torch owns the descriptor from then on."""
    if descriptor is None:
        return None
    reserved = socket.socket(fileno=descriptor)
    reserved.listen()
    return reserved.detach()


PLUGIN = TorchPlugin("torch", image=("torch>=2.6", "numpy>=2"), modules=("torch",))
