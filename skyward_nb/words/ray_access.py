"""A pool's use of a Ray cluster, as one value: `RayAccess`. Pure."""

from __future__ import annotations

import msgspec

AUTO_ADDRESS = "auto"
"""Of `address=`: the cluster that this machine is a node of, or the one that `RAY_ADDRESS` names."""


class RayAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at `address`, and further `resources` of each node, by Ray's names.

    `python` is an interpreter that has Ray; None: this one. With `waits`, a group that no node can hold now is
    waited for.
    """

    address: str = AUTO_ADDRESS
    resources: tuple[tuple[str, float], ...] = ()
    python: str | None = None
    waits: bool = False
