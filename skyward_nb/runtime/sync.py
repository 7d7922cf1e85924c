"""What all ranks do together: `sky.barrier`, and the mesh of `sky.mesh`."""

from __future__ import annotations

from typing import Any

from skyward_nb.runtime.groups import Group, entered
from skyward_nb.runtime.here import instance_info


def barrier() -> None:
    """Wait until every rank of the pool has come here; outside a pool, return at once.

    Uses the process group of the framework that was readied first. Raises RuntimeError where the
    pool has several ranks and no framework that could make them meet.
    """
    if instance_info().world_size == 1:
        return
    group = next(iter(entered.values()), None)
    if group is None:
        raise RuntimeError(
            "sky.barrier() needs a process group: make the pool with framework=torch, or jax"
        )
    group.barrier()


def mesh(framework: str | None = None) -> Any:
    """All ranks, or devices, arranged as `mesh=` says; without it, along `fsdp` by 1 on `tp`.

    A torch `DeviceMesh` or a `jax.sharding.Mesh`; `framework` says which where the pool has both.
    Raises RuntimeError where there is no such framework.
    """
    group = _group(framework)
    return group.mesh(instance_info().mesh)


def _group(framework: str | None) -> Group:
    found = entered.get(framework) if framework else next(iter(entered.values()), None)
    if found is None:
        asked = framework or "torch, or jax"
        raise RuntimeError(f"sky.mesh() needs a pool made with framework={asked}")
    return found
