"""The nodes of a placement group as machines of a pool, all or none; and groups that were left."""

from __future__ import annotations

import asyncio

from skyward_nb.providers.far.engine_record import listing_of
from skyward_nb.providers.far.host_setup import made_ready
from skyward_nb.providers.far.take_down import EngineSweep, end_orphans, swept_first
from skyward_nb.providers.maker_process import MakerProcess
from skyward_nb.providers.provider_protocol import AgentGone, Tell
from skyward_nb.providers.ray.group import NodeGroup
from skyward_nb.providers.ray.group_records import GroupRecord
from skyward_nb.providers.ray.group_words import group_name
from skyward_nb.providers.ray.helper_client import RayHelper
from skyward_nb.providers.ray.messages import StartedActor
from skyward_nb.providers.ray.ray_line import RayLine
from skyward_nb.providers.ray.ray_machine import RayMachine
from skyward_nb.words.errors import HostError, HostNotReady, StartError
from skyward_nb.words.spec import PoolSpec


async def acquire(spec: PoolSpec, pool_id: str, tell: Tell) -> tuple[RayMachine, ...]:
    """The machines of a new pool, head first; raises a `SkyError`, and nothing is left then."""
    assert spec.ray is not None
    await swept_first(sweep_groups(spec.ray.address), tell)
    record = GroupRecord(
        pool_id=pool_id,
        access=spec.ray,
        maker=MakerProcess.this(),
        listing=listing_of(pool_id),
        count=spec.nodes,
    )
    helper = RayHelper(spec.ray)
    group = NodeGroup(record, helper)
    helper.used_by(group)
    try:
        return await _machines(spec, group, await group.begin(spec, tell), tell)
    except BaseException:
        if GroupRecord.find(pool_id) is not None:  # else nothing was asked for
            await asyncio.shield(group.give_back())
        raise
    finally:
        await asyncio.shield(helper.let_go(group))


async def _machines(
    spec: PoolSpec, group: NodeGroup, actors: list[StartedActor], tell: Tell
) -> tuple[RayMachine, ...]:
    record = group.record
    lines = [
        RayLine(
            name, record.pool_id, number, group.helper, f"{actor.address}, node {actor.node[:12]}"
        )
        for number, (name, actor) in enumerate(zip(record.nodes, actors, strict=True))
    ]
    order = {line: number for number, line in enumerate(lines)}
    try:
        readied = await made_ready(spec, lines, tell)
    except (HostError, HostNotReady) as fault:
        # An actor may have gone meanwhile: that is the reason then.
        for number, name in enumerate(record.nodes):
            if why := await group.why_ended(number):
                raise StartError(spec.name, f"{name}: {why}") from fault
        raise
    return tuple(
        RayMachine(spec.name, node, order[line], line, group, environment)
        for node, (line, environment) in enumerate(readied)
    )


def find(spec: PoolSpec, pool_id: str) -> tuple[RayMachine, ...]:
    """The machines of an existing pool; raises `AgentGone` if it has no group any more."""
    record = GroupRecord.find(pool_id)
    if record is None or not record.nodes:
        raise AgentGone
    helper = RayHelper(record.access, record.cluster)
    group = NodeGroup(record, helper)
    return tuple(
        RayMachine(spec.name, number, number, RayLine(name, pool_id, number, helper), group)
        for number, name in enumerate(record.nodes)
    )


async def sweep_groups(address: str | None = None) -> EngineSweep:
    """Remove the groups of pools that nobody can find; of one cluster where its address is given."""
    return await end_orphans(
        [
            each
            for each in GroupRecord.every()
            if address in (None, each.access.address, each.cluster)
        ],
        lambda record: f"placement group {group_name(record.pool_id)}",
        lambda record: NodeGroup(record, RayHelper(record.access, record.cluster)).end_orphan(),
    )
