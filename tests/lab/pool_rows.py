"""Pools as the server tells of them, for tests without any."""

from __future__ import annotations

from skyward_nb.reports.status import ClientRow, PoolRow, RankRow


def row(number, **changes):
    """A pool as the server tells of it."""
    known = {
        "name": f"pool{number}",
        "id": f"pool{number}-3fa2b1",
        "spec": "8 ranks on 2 nodes, torch (local)",
        "provider": "local",
        "nodes": 2,
        "ranks_per_node": 4,
        "accelerator": None,
        "framework": ("torch",),
        "keep": False,
        "started": 1000.0 - number,
        "generation": 1,
        "client": ClientRow(5, "here", "/home/a/train.ipynb", ""),
        "where": "in use by the kernel of /home/a/train.ipynb (process 5)",
        "doing": "idle",
        "ranks": tuple(RankRow(rank, rank // 4, 100 + rank) for rank in range(8)),
    }
    return PoolRow(**{**known, **changes})
