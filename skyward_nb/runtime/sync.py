"""Synchronization of all ranks: `sky.barrier`, and the mesh of `sky.mesh`."""

from __future__ import annotations

import os
import sys
from typing import Any

from skyward_nb.runtime.instance import instance_info
from skyward_nb.runtime.mesh_shapes import read_shape
from skyward_nb.runtime.process_group import ProcessGroup, entered
from skyward_nb.runtime.worker_group import formed_here
from skyward_nb.words.frameworks import FRAMEWORKS
from skyward_nb.words.info import COMPUTE_POOL
from skyward_nb.words.mesh import Axes, part_of

FRAMEWORK_NAMES = tuple(each.name for each in FRAMEWORKS)
_ALONE = (
    "{name} needs a process group, and the nodes of this pool stand alone: make it without "
    "sky.Options(cluster=False), and with framework=torch, jax or tensorflow"
)


def barrier() -> None:
    """Wait until every rank of the pool calls it; outside a pool, return at once.

    Uses the process group of the framework that was readied first. Raises RuntimeError where the
    pool has several ranks and no framework that could make them meet. Where nodes stand alone, the only
    rank of a node does not wait, and several ranks raise.
    """
    info = instance_info()
    if info.world_size == 1:
        return
    group = next(iter(entered.values()), None) or formed_here()
    if group is None and not info.cluster:
        raise RuntimeError(_ALONE.format(name="sky.barrier()"))
    if group is None:
        raise RuntimeError(
            "sky.barrier() needs a process group: make the pool with framework=torch, jax or "
            "tensorflow"
        )
    group.barrier()


def mesh(shape: Any = None, framework: str | None = None, *, config: Any = None) -> Any:
    """All ranks, or devices, arranged as `mesh=` says; without it, along `fsdp` by 1 on `tp`.

    Another `shape` is `"fsdp:2,tp:2"`, `[[2, 2], ["fsdp", "tp"]]`, or the key of a configuration, as in
    `"model.mesh_shape"`: that of `config` (an OmegaConf, or nested mappings), else of the script's
    arguments (`model.mesh_shape=[[2,2],["fsdp","tp"]]`). A word such as `"jax"` alone is `framework`. A torch `DeviceMesh` or a `jax.sharding.Mesh`; `framework` says which where the pool has both.
    Made when it is first asked for, by all ranks together, and the same one until the pool has a new
    process group. A worker of torchrun has one once it has called `init_process_group`. Raises RuntimeError
    outside a pool, and where there is no such framework; ValueError for a key that is nowhere, or a
    shape that is none.
    """
    if shape in FRAMEWORK_NAMES and framework is None:
        shape, framework = None, shape
    axes = instance_info().mesh if shape is None else read_shape(shape, config, sys.argv)
    return _group(framework).mesh(axes)


def data_place(mesh: Any = None) -> tuple[int, int]:
    """(index, count): the index of this rank's part of the data, of how many; (0, 1) outside a pool.

    Ranks that differ only along `tp` compute one thing together, and take the same part; along every
    other axis data is split. Of the pool's own mesh, or of a `DeviceMesh` of torch that is given, whose
    axes have names (else ValueError).
    """
    if mesh is not None:
        if not getattr(mesh, "mesh_dim_names", None):
            raise ValueError("sky.data_place: the mesh's axes have no names: give mesh_dim_names")
        axes: Axes = tuple(zip(mesh.mesh_dim_names, mesh.shape, strict=True))
        ranks = mesh.mesh.flatten().tolist()
        return part_of(axes, ranks.index(mesh.get_rank()), len(ranks))
    info = instance_info()
    return part_of(info.mesh, info.rank, info.world_size)


def _group(framework: str | None) -> ProcessGroup:
    found = entered.get(framework) if framework else next(iter(entered.values()), None)
    if found is None and framework in (None, "torch"):
        found = formed_here()
    if found is None and COMPUTE_POOL not in os.environ:
        raise RuntimeError("sky.mesh() is for code on ranks: there is no pool here")
    if found is None and not instance_info().cluster:
        raise RuntimeError(_ALONE.format(name="sky.mesh()"))
    if found is None:
        asked = framework or "torch, or jax"
        raise RuntimeError(f"sky.mesh() needs a pool made with framework={asked}")
    return found
