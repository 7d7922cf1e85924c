"""PyTorch: a process group over all ranks, the device set, threads shared out fairly.

Ranks meet by `plugins/torch_stores`, where nothing listens if they are on one machine. Source for the variables: torch's elastic agent.
"""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from collections.abc import Callable, Collection, Generator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyward_nb.compat import torch_private
from skyward_nb.plugins import torch_models
from skyward_nb.plugins.framework_sockets import FrameworkSockets
from skyward_nb.plugins.plugin_base import (
    MAY_CHANGE,
    PlainPlugin,
    RankContext,
    check_mesh,
    check_people,
    nccl_kept_to,
    own_interface,
)
from skyward_nb.plugins.torch_forming import Forming
from skyward_nb.plugins.torch_kept import KeptGroups
from skyward_nb.plugins.torch_rescue import rescue
from skyward_nb.plugins.torch_steps import steps_counted
from skyward_nb.plugins.torch_stores import RankStores, stores_of
from skyward_nb.runtime import first_step
from skyward_nb.runtime.common_step import common_step
from skyward_nb.runtime.instance import instance_info
from skyward_nb.runtime.process_group import entered
from skyward_nb.words.info import InstanceInfo
from skyward_nb.words.mesh import Axes, axes_of
from skyward_nb.words.mig import own_slice

if TYPE_CHECKING:
    from skyward_nb.words.spec import PoolSpec

_JOIN = timedelta(seconds=120)
_wires = FrameworkSockets()


@dataclass(frozen=True)
class TorchPlugin(PlainPlugin):
    """`torch`: `init_process_group` with nccl on GPUs, gloo on CPU."""

    def options(self, spec: PoolSpec, variant: str) -> dict[str, str]:
        """`backend`, `timeout` of its collectives in seconds, and how many simulated `gpus` a rank sees."""
        del variant
        check_mesh(spec, spec.world_size, "ranks")
        timeout = spec.collective_timeout
        # NCCL joins slices of one GPU from 2.30 on, and by its own words for trials.
        backend = "gloo" if spec.mig and spec.backend == "auto" else spec.backend
        more = {"timeout": str(timeout)} if timeout else {}
        if spec.simulate and spec.accelerator is not None:
            seen = 1 if spec.mig else spec.accelerator.count
            more |= {"simulate": spec.simulate, "gpus": str(seen)}
        return {"backend": backend} | more

    def preload(self, options: dict[str, str]) -> tuple[str, ...]:
        """What a first step of training would import.

        The variable has torch count GPUs without a context on one. Keras does so where it is imported, and after
        a context was made no fork can use a GPU.
        https://docs.pytorch.org/docs/2.9/notes/multiprocessing.html#multiprocessing-poison-fork-note
        """
        del options
        return ("PYTORCH_NVML_BASED_CUDA_CHECK=1", *first_step.MODULES)

    def env(self, info: InstanceInfo, options: dict[str, str]) -> dict[str, str]:
        """Gloo and NCCL kept to the interface at which the others reach this machine."""
        del options
        if all(peer.address.startswith("127.") for peer in info.peers):
            return {"GLOO_SOCKET_IFNAME": "lo"}
        own = own_interface(info)
        return {"GLOO_SOCKET_IFNAME": own, **nccl_kept_to(own)} if own else {}

    @contextmanager
    def enter(self, place: RankContext, options: dict[str, str]) -> Generator[None]:
        """Form the process group of this generation; raises what torch raises."""
        import torch

        info = place.info
        check_people(info, options, MAY_CHANGE)
        torch.set_num_threads(place.threads)
        _number_hooks_apart()
        backend = device_and_backend(info, options.get("backend", "auto"))
        timeout = options.get("timeout")
        _wires.forget(info.head_port)
        # What is connected for a new group is known as such: `new_group`, `split_group`.
        with torch_private.making_groups(_as_known), closing(stores_of(place)) as stores:
            _Present.stores = stores
            store = stores.open(_JOIN)
            limit = timedelta(seconds=float(timeout)) if timeout else None
            forming = Forming(info, store, backend, limit)
            with (
                forming.heeded(),
                torch_models.remembered(),
                steps_counted(info, stores),
                ExitStack() as simulation,
            ):
                _form(forming, KeptGroups(info, store, _wires.during, _group.made()))
                common_step.made_good()
                del store
                entered[self.name] = _group
                if "simulate" in options:
                    simulation.enter_context(_simulated(info, options))
                try:
                    yield
                finally:
                    del entered[self.name]
                    # What still waits on a peer would not see that its group is over.
                    self.cut()

    def cut(self) -> bool:
        """Shut gloo's connections and the store's, and abort NCCL's communicators."""
        found = _wires.cut()
        if _Present.stores is not None and _Present.stores.cut():
            found = True  # also where a peer's cut has closed all connections before
        on_nccl = [group for group, backend in torch_private.groups() if "nccl" in backend]
        if on_nccl:
            with contextlib.suppress(Exception):
                # As long as they wait: an abort ends them as if all were well.
                since = torch_private.begun_and_not_ended(_Present.recorded)
                if since is not None:
                    common_step.cut_since(since)
            with contextlib.suppress(Exception):
                torch_private.abort_groups(on_nccl)
                found = True
                # What was cut stays recorded as not ended.
                _Present.recorded = torch_private.last_recorded()
        return found

    def awaited_on_gpu(self) -> str:
        """One of NCCL's: its call returns at once, and the program waits where it reads from the GPU."""
        try:
            names = torch_private.collectives_on_gpu(_Present.recorded)
        except Exception:  # noqa: BLE001 - a GPU that is lost tells nothing
            return ""
        return names[0] if names else ""

    def leaves_open(self) -> bool:
        """Whether a model is in the midst of a forward or backward pass."""
        return torch_models.are_unfinished()

    def keep_state(
        self, folder: Path, generation: int, name_of: Callable[[object], str]
    ) -> str | None:
        """That of DDP models, their optimizers and schedules."""
        return rescue(folder, generation, name_of)

    def regained(self) -> str:
        """What of earlier groups goes on."""
        return _Regained.words

    def has_group(self) -> bool:
        """Whether torch has a default group."""
        import torch.distributed as dist

        return dist.is_initialized()

    def steps(self, ended: str) -> dict[str, int]:
        """The sequence number of each group, by the name that all of its ranks know it by."""
        del ended
        try:
            return {
                group.group_name: torch_private.collectives_begun(group)
                for group, _ in torch_private.groups()
            }
        except Exception:  # noqa: BLE001 - groups of the user's own backends need not count
            return {}


class TorchGroup:
    """All ranks as torch's default group joins them, be it the plugin's or one that user code formed."""

    name = "torch"

    def __init__(self) -> None:
        self._meshes: dict[Axes, Any] = {}
        self._groups: dict[tuple[int, ...], Any] = {}
        self._of: weakref.ref[Any] | None = None

    def barrier(self) -> None:
        """Wait for all ranks; raises RuntimeError where code has destroyed the group."""
        import torch.distributed as dist

        _world()
        dist.barrier()

    def add(self, tensor: Any, ranks: tuple[int, ...]) -> Any:
        """The sum over these ranks, in place; raises RuntimeError where code has destroyed the group."""
        import torch.distributed as dist

        self._renew()
        group = None
        if len(ranks) < dist.get_world_size():
            group = self._groups.get(ranks)
            if group is None:
                group = dist.new_group(list(ranks), use_local_synchronization=True)
                self._groups[ranks] = group
        dist.all_reduce(tensor, group=group)
        return tensor

    def _renew(self) -> None:
        """Forget what was made of another default group."""
        world = _world()
        if self._of is None or self._of() is not world:
            self._of, self._meshes, self._groups = weakref.ref(world), {}, {}

    def made(self) -> dict[str, tuple[int, ...]]:
        """What was made of the group, by name, and by which ranks: meshes (of all of them: none is named), and groups."""
        return {repr(axes): () for axes in self._meshes} | {
            repr(each): each for each in self._groups
        }

    def keep_only(self, names: Collection[str]) -> None:
        """Forget what was made, but for this, which all its ranks have: else some would make it anew, without the others."""
        self._meshes = {axes: each for axes, each in self._meshes.items() if repr(axes) in names}
        self._groups = {ranks: each for ranks, each in self._groups.items() if repr(ranks) in names}

    def mesh(self, axes: Axes) -> Any:
        """A `DeviceMesh` over all ranks; collective when it is first made of a group.

        Raises RuntimeError where code has destroyed the group.
        """
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh

        self._renew()
        if axes not in self._meshes:
            # Of GPUs where the pool has some, not of those that a machine happens to have.
            on_gpu = instance_info().real_accelerators > 0 or dist.get_backend() == "nccl"
            kind = "cuda" if on_gpu else "cpu"
            sizes, names = axes_of(axes, dist.get_world_size())
            self._meshes[axes] = init_device_mesh(kind, sizes, mesh_dim_names=names)
        return self._meshes[axes]


_group = TorchGroup()


class _Present:
    """What the present generation meets by."""

    stores: RankStores | None = None
    recorded: int = -1
    """The last collective of NCCL, by torch's number, that was begun when NCCL was cut."""


class _Regained:
    """What of earlier generations goes on in this process."""

    had_groups = False
    words = ""


def _form(forming: Forming, kept: KeptGroups) -> None:
    """Have the groups of an earlier generation of this process go on, or form a new one; raises what torch raises."""
    import torch.distributed as dist

    words = kept.go_on() if _Regained.had_groups else None
    _group.keep_only(kept.common)
    _Regained.had_groups, _Regained.words = True, words or ""
    if words is None:
        if dist.is_initialized():
            dist.destroy_process_group()
        forming.form()
    else:
        forming.adopt()


def _number_hooks_apart() -> None:
    """Have hooks of this rank be numbered as those of no other process.

    One that came with a model has kept its number, and another with the same one would take its place.
    """
    from torch.utils.hooks import RemovableHandle

    RemovableHandle.next_id = max(RemovableHandle.next_id, time.time_ns())


def _world() -> Any:
    import torch.distributed as dist

    if not dist.is_initialized():
        raise RuntimeError(
            "the process group is destroyed: dist.init_process_group() makes it anew"
        )
    return dist.group.WORLD


def device_and_backend(info: InstanceInfo, asked: str) -> str:
    """Set this rank's device, where it has one; what its group runs on.

    Raises RuntimeError where NCCL is asked for and several ranks would share a GPU, which it cannot.
    """
    import torch

    if info.simulated:
        return "gloo"
    if not info.accelerators:
        return "gloo" if asked == "auto" else asked
    visible = torch.cuda.device_count()
    if not visible:
        raise RuntimeError(
            f"rank {info.rank} of node {info.node} needs a GPU, and PyTorch sees none: "
            "check that it is a build with CUDA, and check CUDA_VISIBLE_DEVICES"
        )
    # One that sees its own device alone, such as a slice of one, has number 0.
    torch.cuda.set_device(info.local_rank % visible)
    is_shared = info.workers_per_node > visible
    if asked == "auto":
        return "gloo" if is_shared else "nccl"
    # Slices of its neighbours may be of other GPUs.
    has_slice = own_slice(os.environ.get("CUDA_VISIBLE_DEVICES")) is not None
    if asked == "nccl" and is_shared and not has_slice:
        raise RuntimeError(
            f"backend=nccl needs a GPU for each rank, and the {info.workers_per_node} ranks of node "
            f"{info.node} see {visible}: use fewer ranks_per_node=, or backend=gloo"
        )
    return asked


def _simulated(info: InstanceInfo, options: dict[str, str]) -> AbstractContextManager[None]:
    """CUDA devices on the CPU, as many as the rank would see."""
    from skyward_nb.plugins.simulated_cuda import SimulatedGpus
    from skyward_nb.plugins.torch_simulation import cuda_on_cpu

    count = int(options["gpus"])
    is_said = options["simulate"] == "cuda"
    return cuda_on_cpu(
        SimulatedGpus(count, info.local_rank % count, info.accelerator or "GPU", is_said)
    )


def _as_known(make: Callable[..., Any]) -> Callable[..., Any]:
    """What makes a group, so that its connections are known as the framework's."""

    def make_known(*args: Any, **kwargs: Any) -> Any:
        return _wires.during(lambda: make(*args, **kwargs))

    return make_known


PLUGIN = TorchPlugin(
    "torch", image=("torch>=2.6", "numpy>=2"), modules=("torch",), keeps_state=True
)
