"""What the agents of all machines of a pool say of it, as one."""

from __future__ import annotations

from msgspec.structs import replace

from skyward_nb.protocol.events import AgentStatus


def status_of_pool(found: list[AgentStatus]) -> AgentStatus:
    """The status of a pool, from those of its machines."""
    first = found[0]
    begun = [each.unseen for each in found if each.unseen is not None]
    lefts = [each.left for each in found if each.left is not None]
    return replace(
        first,
        client=next((each.client for each in found if each.client is not None), None),
        left=min(lefts, default=None),
        generation=max(each.generation for each in found),
        ranks=tuple(sorted(rank for each in found for rank in each.ranks)),
        pids={rank: pid for each in found for rank, pid in each.pids.items()},
        ended={rank: how for each in found for rank, how in each.ended.items()},
        unseen=max(begun, key=lambda began: began.run, default=None),
        running=tuple(sorted(rank for each in found for rank in each.running)),
    )
