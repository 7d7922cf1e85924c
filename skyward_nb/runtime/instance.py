"""The place of this process in a pool."""

from __future__ import annotations

import os
import sys

from msgspec.structs import replace

from skyward_nb.words.decoding import from_json
from skyward_nb.words.info import COMPUTE_POOL, InstanceInfo, under_torchrun


def instance_info() -> InstanceInfo:
    """This rank's place in its pool; under torchrun a worker's among its workers, elsewhere node 0 of 1. Never an error."""
    if text := os.environ.get(COMPUTE_POOL):
        return from_json(text, InstanceInfo)
    info = under_torchrun(os.environ)
    if info is None:
        return InstanceInfo()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return replace(info, accelerators=torch.cuda.device_count())
    return info


def is_head(info: InstanceInfo | None = None) -> bool:
    """Whether this rank, or the one at another place, is rank 0; true outside a pool."""
    return (info or instance_info()).is_head


def rank() -> int:
    """The number of this rank among those of its pool; 0 outside a pool."""
    return instance_info().rank


def world_size() -> int:
    """How many ranks the pool has; 1 outside a pool."""
    return instance_info().world_size


def device() -> str:
    """What this rank computes on, as torch spells it: `cuda:1`; `cpu` on a rank without an accelerator."""
    info = instance_info()
    if not info.real_accelerators:
        return "cpu"
    if (torch := sys.modules.get("torch")) is not None:
        if not torch.cuda.is_available():
            return "cpu"
        return f"cuda:{torch.cuda.current_device()}"  # as its plugin has set it, or the user since
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return f"cuda:{info.local_rank % (len(visible.split(',')) if visible else info.accelerators)}"
