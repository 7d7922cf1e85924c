"""Jobs whose makers were killed while they waited: cancelled before the next one is submitted."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from skyward_nb.protocol.events import Remark
from skyward_nb.providers.base import Tell
from skyward_nb.providers.far.exec_line import ExecLine, here
from skyward_nb.providers.folders import far_root
from skyward_nb.providers.slurm.controller import SlurmController, SlurmSilent, clean_environ
from skyward_nb.providers.slurm.job_records import JobRecord, all_records
from skyward_nb.providers.slurm.login_node import over_login
from skyward_nb.words.slurm_access import SlurmAccess


def controller_of(access: SlurmAccess) -> SlurmController:
    """Slurm, as this access reaches it."""
    if access.login is None:
        return SlurmController(here(clean_environ()))
    shell = ExecLine(access.login, partial(over_login, access.login), environ=clean_environ())
    return SlurmController(shell)


async def cancel_orphans(tell: Tell) -> None:
    """Cancel the jobs of pools that nobody can find: their makers are dead, and they are not listed."""
    for record in all_records():
        if not is_orphan(record):
            continue
        if record.is_current:
            record.remove()
            continue
        controller = controller_of(record.access)
        try:
            state = await controller.look(record.pool_id, record.job)
            if state is not None and (state.waits or state.runs):
                await controller.cancel(record.pool_id, record.job)
                tell(
                    Remark(
                        f"job {state.job} of an earlier pool, {record.pool_id}, was left: it is cancelled"
                    )
                )
            await controller.forget(record.pool_id)
        except SlurmSilent:
            continue
        record.remove()


def is_orphan(record: JobRecord) -> bool:
    """Whether nobody can find a record's pool: no process makes it, and it is not listed."""
    listing = Path(record.listing or far_root() / f"{record.pool_id}.json")
    return not record.maker.may_live and not listing.exists()
