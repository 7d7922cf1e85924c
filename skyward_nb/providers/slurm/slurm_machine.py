"""A node of a job as a machine of a pool, and the line to it: `srun` into the job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from skyward_nb.bootstrap.environment import Environment
from skyward_nb.providers.far.direct_connection import ThroughFor
from skyward_nb.providers.far.engine_machine import EngineAllocation, EngineMachine
from skyward_nb.providers.far.exec_line import ArgvFor, ExecLine
from skyward_nb.providers.far.host_setup import folder_of
from skyward_nb.providers.far.keeper import KeptMachine, first, prelude
from skyward_nb.providers.far.line_protocol import Line
from skyward_nb.providers.slurm.allocation import Allocation
from skyward_nb.providers.slurm.batch_script import contained, keep_of
from skyward_nb.providers.slurm.controller import clean_environ
from skyward_nb.providers.slurm.job_records import JobRecord
from skyward_nb.providers.slurm.login_node import over_login, through_login

_UNPACKED, _UNPACKED_THERE = 1800, 300
"""Seconds in which pyxis has unpacked an image, for a job of the pool's own, and in one that was there."""
_NOISE = ("srun: cluster configuration lacks support for cpu binding", ": Exited with exit code ")


def line_to(record: JobRecord, node: str, *, is_new: bool = False) -> ExecLine:
    """The line to a node: each command is a step of the job, beside the keeper's, and shares its devices.

    The keeper of a new job may not be there yet, and is waited for.
    """
    words = _step(record, node)
    keep = keep_of(record.pool_id, record.job, node)
    options, begin = contained(record.access, record.pool_id, record.runtime, keep)

    def argv_for(command: Sequence[str]) -> list[str]:
        return over_login(record.access.login, [*words, *options, *begin, *command])

    line = ExecLine(
        node,
        argv_for,
        place=_place(record, node),
        prelude=prelude(keep),
        first=_first(record, keep, in_image=bool(options)) if is_new else "",
        waits_by=_beside(record, node) if options else None,
        noise=_NOISE,
        environ=clean_environ(),
        keeps_command=is_new,
    )
    line.reaching = "reaching nodes"
    return line


def _first(record: JobRecord, keep: str, *, in_image: bool) -> str:
    """A script that waits for the keeper: unpacking a large image takes minutes. The pool's own job ends where that fails, another one goes on."""
    if not in_image:
        return first(keep)
    patience = _UNPACKED_THERE if record.is_current else _UNPACKED
    why = f": container={record.access.container} may be no image there, or takes long to unpack"
    return first(keep, patience, why)


def _line_beside(record: JobRecord, node: str) -> ExecLine:
    """A line to a node itself, where the pool is in a container there."""
    place = _place(record, node)
    return ExecLine(node, _beside(record, node), place=place, noise=_NOISE, environ=clean_environ())


def _beside(record: JobRecord, node: str) -> ArgvFor:
    words = _step(record, node)
    return lambda command: over_login(record.access.login, [*words, *command])


def _place(record: JobRecord, node: str) -> str:
    return f"node {node} of job {record.job}"


def _step(record: JobRecord, node: str) -> list[str]:
    return [
        "srun",
        f"--jobid={record.job}",
        "--overlap",
        "--nodes=1",
        "--ntasks=1",
        f"--nodelist={node}",
        "--mem=0",
        "--cpu-bind=none",
        "--unbuffered",
        "--quiet",
        "--chdir=/",
        "--export=NONE",
    ]


class SlurmMachine(EngineMachine):
    """A node of a pool's job; `allocation` is that of all of them."""

    def __init__(
        self,
        pool: str,
        node: int,
        line: ExecLine,
        allocation: Allocation,
        environment: Environment | None = None,
    ) -> None:
        pool_id, job = allocation.record.pool_id, allocation.record.job
        # Another job of the pool may be on the same machine, and this one on its way out.
        super().__init__(pool, folder_of(f"{pool_id}.{job}", node), node, line, environment)
        self.keep: str = keep_of(pool_id, job, line.name)
        self.allocation: Allocation = allocation
        self.given: EngineAllocation = allocation
        self.variables: Mapping[str, str] = {"SKYWARD_NOTICES": allocation.notice()}
        if login := allocation.record.access.login:
            self.through: ThroughFor | None = partial(through_login, login)

    async def why_ended(self) -> str:
        """Why its job has ended, as Slurm says; "" if it has not, or Slurm does not answer."""
        return await self.allocation.why_ended()

    def _outside(self) -> Line:
        record = self.allocation.record
        return _line_beside(record, self.name) if record.runtime == "pyxis" else self._line

    async def release(self) -> str | None:
        """End the job with all of its machines, and wait until it has left the queue.

        Of a job that was there before, end the keeper alone.
        """
        if not self.allocation.record.is_current:
            return await super().release()
        await self.allocation.give_back()
        if await self.why_ended():  # and with it all that was there
            return await self.let_go()
        return await KeptMachine.release(self)
