"""The nodes of a job as machines of a pool, all or none."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from skyward_nb.protocol.events import Remark
from skyward_nb.providers.far.engine_record import listing_of
from skyward_nb.providers.far.host_setup import made_ready
from skyward_nb.providers.far.take_down import swept_first
from skyward_nb.providers.maker_process import MakerProcess
from skyward_nb.providers.provider_protocol import AgentGone, Readied, ReplacementRequest, Tell
from skyward_nb.providers.slurm.allocation import Allocation
from skyward_nb.providers.slurm.job_records import JobRecord
from skyward_nb.providers.slurm.job_sweep import cancel_orphans, controller_of
from skyward_nb.providers.slurm.slurm_machine import SlurmMachine, line_to
from skyward_nb.words.errors import HostError, HostNotReady, StartError
from skyward_nb.words.spec import PoolSpec


async def acquire(spec: PoolSpec, pool_id: str, tell: Tell) -> tuple[SlurmMachine, ...]:
    """The machines of a new pool, head first; raises a `SkyError`, and nothing is left then."""
    assert spec.slurm is not None
    controller = controller_of(spec.slurm)
    await swept_first(cancel_orphans(), tell)
    record = JobRecord(
        pool_id=pool_id, access=spec.slurm, maker=MakerProcess.this(), listing=listing_of(pool_id)
    )
    allocation = Allocation(record, controller)
    try:
        begin = allocation.join if spec.slurm.job else allocation.begin
        nodes = await begin(spec, tell)
        return await _machines(spec, allocation, nodes, tell)
    except BaseException:
        await asyncio.shield(allocation.give_back())
        raise


async def replaced(
    spec: PoolSpec, pool_id: str, lack: ReplacementRequest, readied: Readied, tell: Tell
) -> tuple[SlurmMachine, ...]:
    """The machines of another job in place of those of the pool's; see `provider_protocol.Replaces`.

    A job ends as a whole: nodes of it are replaced together. Raises `AgentGone` if the pool has no record any more.
    """
    record = JobRecord.find(pool_id)
    if record is None:
        raise AgentGone("its record is gone: another process has ended it")
    lost = [each for each in lack.lost if isinstance(each, SlurmMachine)]
    if len(lost) < spec.nodes:
        why = f"the other nodes of job {record.job} end with it, and are replaced with it: run the cell again"
        raise StartError(spec.name, why)
    begun = replace(record, job="", nodes=(), started="", before=record.job)
    allocation = Allocation(begun, lost[0].allocation.controller)
    wanted = spec if lack.seconds is None else replace(spec, ttl=lack.seconds)
    try:
        nodes = await allocation.begin(wanted, tell)
        machines = await _machines(wanted, allocation, nodes, tell)
        await readied(machines)
    except BaseException:
        await asyncio.shield(allocation.give_up())
        lost[0].allocation.keep(allocation)
        raise
    if left := await asyncio.shield(allocation.end_before()):
        tell(Remark(f"{left} may still run; it ends by itself, and with the pool"))
    await asyncio.gather(*(each.let_go() for each in lost))
    return machines


async def _machines(
    spec: PoolSpec, allocation: Allocation, nodes: list[str], tell: Tell
) -> tuple[SlurmMachine, ...]:
    record = allocation.record
    lines = [line_to(record, node, is_new=True) for node in nodes]
    try:
        readied = await made_ready(spec, lines, tell)
    except (HostError, HostNotReady) as fault:
        # The job may have ended meanwhile: that is the reason then. Of one that was there, srun may have refused a step.
        why = await allocation.why_ended()
        said = await allocation.controller.output(record.pool_id)
        if why or (said and record.is_current):
            raise StartError(spec.name, why or _reason(fault), said) from fault
        raise
    return tuple(
        SlurmMachine(spec.name, node, line, allocation, environment)
        for node, (line, environment) in enumerate(readied)
    )


def _reason(fault: HostError | HostNotReady) -> str:
    return fault.why if isinstance(fault, HostError) else str(fault)


def find(spec: PoolSpec, pool_id: str) -> tuple[SlurmMachine, ...]:
    """The machines of an existing pool; raises `AgentGone` if it has no job any more."""
    record = JobRecord.find(pool_id)
    if record is None or not record.nodes:
        raise AgentGone
    allocation = Allocation(record, controller_of(record.access))
    return tuple(
        SlurmMachine(spec.name, number, line_to(record, node), allocation)
        for number, node in enumerate(record.nodes)
    )
