"""Jobs whose makers were killed while they waited: cancelled before the next one is submitted."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass, field
from functools import partial

from skyward_nb.protocol.events import Remark
from skyward_nb.providers.base import Tell
from skyward_nb.providers.far.exec_line import ExecLine, here
from skyward_nb.providers.slurm.controller import SlurmController, SlurmSilent, clean_environ
from skyward_nb.providers.slurm.job_records import JobRecord
from skyward_nb.providers.slurm.login_node import over_login
from skyward_nb.words.slurm_access import SlurmAccess


def controller_of(access: SlurmAccess) -> SlurmController:
    """Slurm, as this access reaches it."""
    if access.login is None:
        return SlurmController(here(clean_environ()))
    shell = ExecLine(access.login, partial(over_login, access.login), environ=clean_environ())
    return SlurmController(shell)


@dataclass
class JobSweep:
    """Jobs that a sweep cancelled, those it left, in words, with the reasons, and those of pools made elsewhere."""

    cancelled: list[str] = field(default_factory=list[str])
    left: list[str] = field(default_factory=list[str])
    foreign: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        said = [f"cancelled leftovers: {', '.join(self.cancelled)}"] if self.cancelled else []
        if self.left:
            said.append(f"not confirmed to be gone: {', '.join(self.left)}")
        return "; ".join(said) or "nothing was left"


async def sweep_jobs() -> JobSweep:
    """Cancel the jobs of pools that nobody can find, and name those of this user that were not made here."""
    found = JobSweep()
    await cancel_orphans(lambda _: None, found)
    known = {record.pool_id for record in JobRecord.every()}
    places = {record.access.login for record in JobRecord.every()}
    if shutil.which("squeue") is not None:
        places.add(None)
    for login in places:
        with contextlib.suppress(SlurmSilent):
            jobs = await controller_of(SlurmAccess(login=login)).named()
            found.foreign += [f"job {job} (pool {pool})" for job, pool in jobs if pool not in known]
    return found


async def cancel_orphans(tell: Tell, found: JobSweep | None = None) -> None:
    """Cancel the jobs of pools that nobody can find: their makers are dead, and they are not listed."""
    found = found or JobSweep()
    for record in JobRecord.every():
        if not record.is_orphan:
            continue
        if record.is_current:
            record.remove()
            continue
        controller = controller_of(record.access)
        try:
            for job in dict.fromkeys((record.job, record.before or record.job)):
                state = await controller.look(record.pool_id, job)
                if state is not None and (state.waits or state.runs):
                    await controller.cancel(record.pool_id, job)
                    found.cancelled.append(f"job {state.job} (pool {record.pool_id})")
                    tell(
                        Remark(
                            f"job {state.job} of an earlier pool, {record.pool_id}, was left: it is cancelled"
                        )
                    )
            await controller.forget(record.pool_id)
        except SlurmSilent as silent:
            found.left.append(f"the job of pool {record.pool_id} ({silent})")
            continue
        record.remove()
