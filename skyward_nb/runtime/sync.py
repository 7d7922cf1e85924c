"""`sky.barrier`: all ranks meet."""

from __future__ import annotations

import sys

from skyward_nb.runtime.here import instance_info


def barrier() -> None:
    """Wait until every rank of the pool has come here; outside a pool, return at once.

    Uses the process group of the framework. Raises RuntimeError where the pool has several
    ranks and no framework that could make them meet.
    """
    if instance_info().world_size == 1:
        return
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_initialized():
        raise RuntimeError(
            "sky.barrier() needs a process group: make the pool with framework=torch"
        )
    distributed.barrier()
