"""Jobs of pools that are gone: cancelled before the next one is submitted, and by a sweep."""

from __future__ import annotations

import contextlib
import shutil
from functools import partial

from skyward_nb.providers.far.exec_line import ExecLine, here
from skyward_nb.providers.far.take_down import EngineSweep, end_orphans
from skyward_nb.providers.slurm.allocation import Allocation
from skyward_nb.providers.slurm.controller import SlurmController, SlurmSilent, clean_environ
from skyward_nb.providers.slurm.job_records import JobRecord
from skyward_nb.providers.slurm.login_node import over_login
from skyward_nb.words.provider_access import SlurmAccess


def controller_of(access: SlurmAccess) -> SlurmController:
    """Slurm, as this access reaches it."""
    if access.login is None:
        return SlurmController(here(clean_environ()))
    shell = ExecLine(access.login, partial(over_login, access.login), environ=clean_environ())
    return SlurmController(shell)


async def cancel_orphans() -> EngineSweep:
    """Cancel the jobs of pools that nobody can find."""
    return await end_orphans(
        JobRecord.every(),
        lambda record: f"job {record.job}" if record.job else "the job",
        lambda record: Allocation(record, controller_of(record.access)).end_orphan(),
    )


async def sweep_jobs() -> EngineSweep:
    """Cancel the jobs of pools that nobody can find, and name those of this user that were not made here."""
    found = await cancel_orphans()
    records = JobRecord.every()
    known = {record.pool_id for record in records}
    places = {record.access.login for record in records}
    if shutil.which("squeue") is not None:
        places.add(None)
    for login in places:
        with contextlib.suppress(SlurmSilent):
            jobs = await controller_of(SlurmAccess(login=login)).named()
            found.foreign += [f"job {job} (pool {pool})" for job, pool in jobs if pool not in known]
    return found
