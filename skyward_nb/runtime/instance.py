"""The place of this process in a pool."""

from __future__ import annotations

import os

import msgspec

from skyward_nb.words.info import COMPUTE_POOL, InstanceInfo


def instance_info() -> InstanceInfo:
    """This rank's place in its pool; outside a pool, node 0 of 1. Never an error."""
    text = os.environ.get(COMPUTE_POOL)
    return msgspec.json.decode(text, type=InstanceInfo) if text else InstanceInfo()


def is_head(info: InstanceInfo | None = None) -> bool:
    """Whether this rank, or the one at another place, is rank 0; true outside a pool."""
    return (info or instance_info()).is_head
