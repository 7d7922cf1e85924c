"""The nodes of a job as machines of a pool, all or none."""

from __future__ import annotations

import asyncio

from skyward_nb.providers.base import AgentGone, Tell
from skyward_nb.providers.far.host_setup import made_ready
from skyward_nb.providers.folders import far_root
from skyward_nb.providers.maker_process import MakerProcess
from skyward_nb.providers.slurm.allocation import Allocation
from skyward_nb.providers.slurm.job_records import JobRecord, find_record
from skyward_nb.providers.slurm.machine import SlurmMachine, line_to
from skyward_nb.providers.slurm.sweep import cancel_orphans, controller_of
from skyward_nb.words.errors import HostError, HostNotReady, StartError
from skyward_nb.words.spec import PoolSpec


async def acquire(spec: PoolSpec, pool_id: str, tell: Tell) -> tuple[SlurmMachine, ...]:
    """The machines of a new pool, head first; raises a `SkyError`, and nothing is left then."""
    assert spec.slurm is not None
    controller = controller_of(spec.slurm)
    await cancel_orphans(tell)
    listing = str((far_root() / f"{pool_id}.json").absolute())
    record = JobRecord(
        pool_id=pool_id, access=spec.slurm, maker=MakerProcess.this(), listing=listing
    )
    allocation = Allocation(record, controller)
    try:
        begin = allocation.join if spec.slurm.job else allocation.begin
        nodes = await begin(spec, tell)
        return await _machines(spec, allocation, nodes, tell)
    except BaseException:
        await asyncio.shield(allocation.give_back())
        raise


async def _machines(
    spec: PoolSpec, allocation: Allocation, nodes: list[str], tell: Tell
) -> tuple[SlurmMachine, ...]:
    record = allocation.record
    lines = [line_to(record, node, is_new=True) for node in nodes]
    try:
        readied = await made_ready(spec, lines, tell)
    except (HostError, HostNotReady) as fault:
        # The job may have ended meanwhile: that is the reason then.
        if why := await allocation.why_ended():
            said = await allocation.controller.output(record.pool_id)
            raise StartError(spec.name, why, said) from fault
        raise
    return tuple(
        SlurmMachine(spec.name, node, line, allocation, environment)
        for node, (line, environment) in enumerate(readied)
    )


def find(spec: PoolSpec, pool_id: str) -> tuple[SlurmMachine, ...]:
    """The machines of an existing pool; raises `AgentGone` if it has no job any more."""
    record = find_record(pool_id)
    if record is None or not record.nodes:
        raise AgentGone
    allocation = Allocation(record, controller_of(record.access))
    return tuple(
        SlurmMachine(spec.name, number, line_to(record, node), allocation)
        for number, node in enumerate(record.nodes)
    )
