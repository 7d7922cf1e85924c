"""The process group that a worker of torchrun has formed by itself, for `sky.mesh` and `sky.barrier`."""

from __future__ import annotations

import sys
import weakref
from typing import Any

from skyward_nb.runtime.process_group import ProcessGroup
from skyward_nb.words.mesh import Axes, axes_of

_meshes: weakref.WeakKeyDictionary[Any, dict[Axes, Any]] = weakref.WeakKeyDictionary()


class WorkerGroup:
    """All workers, as torch's default group joins them."""

    name = "torch"

    def barrier(self) -> None:
        """Wait for all workers."""
        import torch.distributed as dist

        dist.barrier()

    def mesh(self, axes: Axes) -> Any:
        """A `DeviceMesh` over all workers: the same one as long as the group is."""
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh

        known = _meshes.setdefault(dist.group.WORLD, {})
        if axes not in known:
            kind = "cuda" if dist.get_backend() == "nccl" else "cpu"
            sizes, names = axes_of(axes, dist.get_world_size())
            known[axes] = init_device_mesh(kind, sizes, mesh_dim_names=names)
        return known[axes]


def formed_here() -> ProcessGroup | None:
    """The group of this process, if its own code has formed one and torch is imported."""
    dist: Any = sys.modules.get("torch.distributed")
    return WorkerGroup() if dist is not None and dist.is_initialized() else None
