"""The job of a pool: asked for, waited for, watched and ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import warnings
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from skyward_nb.protocol.events import Phase, Remark
from skyward_nb.providers.far.shared_answer import SharedAnswer
from skyward_nb.providers.far.take_down import taken_down
from skyward_nb.providers.provider_protocol import Tell
from skyward_nb.providers.slurm.batch_script import (
    arguments,
    batch_script,
    notice_of,
    step_script,
)
from skyward_nb.providers.slurm.controller import (
    SlurmController,
    SlurmRefused,
    SlurmSilent,
    SlurmUnasked,
)
from skyward_nb.providers.slurm.job_records import JobRecord
from skyward_nb.providers.slurm.job_states import (
    JobState,
    name_left,
    spell_again,
    spell_end,
    spell_left,
    spell_refused,
    spell_waiting,
    why_never,
)
from skyward_nb.words.errors import NodesRefused, StartError
from skyward_nb.words.provider_access import CURRENT, ContainerRuntime
from skyward_nb.words.spec import PoolSpec

_FIRST_LOOK, _LONGER = 0.1, 1.3
_LOOK = 2.0
_LATER = 60.0
_LATER_LOOK = 10.0
_COUNT, _SOON = 30.0, 2.0
"""Seconds between looks, at first, and after a minute; between counts of other jobs, and before the first one."""
_BY_ITSELF = 8.0
"""Seconds that the job of an agent that was told to stop may take to end by itself."""
_WITH_CONTAINER = 60.0
"""As much as its container, which the job removes from its nodes at its end, may be large."""
_END_LIMIT = 90.0
_ASK_AGAIN = 2.0
_COMPLETING_LOOK, _KNOWN_AT_LAST = 0.2, 20.0
"""While the last of a job ends, or its epilog runs, Slurm says no more of it: seconds between looks, and until it is let be."""
_SILENT_LIMIT = 300.0
_SURELY_HEARD = 210
"""Seconds of a time limit of which the signal comes once an agent listens: the notice, Slurm's minute, and a slow start."""


class Allocation:
    """The job of one pool, which all of its machines share."""

    def __init__(self, record: JobRecord, controller: SlurmController) -> None:
        self.record: JobRecord = record
        self.controller: SlurmController = controller
        self.was_told: bool = False
        """Whether an agent of it was reached, and thus told to stop."""
        self._ended = SharedAnswer(self._end)
        self._why = SharedAnswer(self._why_ended, _ASK_AGAIN)
        self._notice = notice_of(None)
        self._ends: float | None = None
        """When its time limit is reached, by this process's clock; None without one."""
        self._has_ended = False
        """Whether Slurm has said that the job is over, or has lost its nodes."""

    # ── of a job that is there ──────────────────────────────────────────────────────────

    async def join(self, spec: PoolSpec, tell: Tell) -> list[str]:
        """Start keepers on nodes of the job that `job=` means; those nodes. Raises `StartError`."""
        assert spec.slurm is not None
        job = spec.slurm.job or ""
        if job == CURRENT:
            job = os.environ.get("SLURM_JOB_ID", "")
            if not job:
                raise StartError(
                    spec.name,
                    "job=current, and this notebook is in no job of Slurm's (SLURM_JOB_ID is not set): "
                    "name one, job=ID, or leave job= out, and one is submitted",
                )
        self._note(replace(self.record, job=job, is_current=True))
        try:
            state = await self.controller.look(self.record.pool_id, job)
            if state is None or not state.runs:
                why = (
                    spell_end(state) or spell_waiting(state) if state else f"there is no job {job}"
                )
                raise StartError(spec.name, f"{why}: `squeue --me` lists your jobs")
            there = await self.controller.nodes(state.nodes)
            if spec.nodes > len(there):
                raise StartError(
                    spec.name,
                    f"nodes={spec.nodes}, and job {job} has {len(there)} ({', '.join(there)}): ask for fewer",
                )
            nodes = there[: spec.nodes]
            runtime = await self._runtime(spec)
            script = step_script(spec, self.record.pool_id, job, nodes, runtime)
            await self.controller.begin_step(self.record.pool_id, script)
        except (SlurmRefused, SlurmSilent) as error:
            raise StartError(spec.name, f"Slurm started nothing in job {job}: {error}") from None
        self._note(replace(self.record, nodes=tuple(nodes), started=state.starts, runtime=runtime))
        tell(Phase(f"job {job}: {', '.join(nodes)}"))
        self._limited(state, tell)
        return nodes

    async def _runtime(self, spec: PoolSpec) -> ContainerRuntime | None:
        """What runs the pool's container, if it has one; raises `SlurmSilent`."""
        if spec.slurm is None or spec.slurm.container is None:
            return None
        return await self.controller.container_runtime()

    # ── asked for ───────────────────────────────────────────────────────────────────────

    async def begin(self, spec: PoolSpec, tell: Tell) -> list[str]:
        """Submit the job and wait until it runs; its nodes, in Slurm's order. Raises `StartError`."""
        self.record.write()
        pool_id = self.record.pool_id
        tell(Phase("asking Slurm for nodes"))
        try:
            runtime = await self._runtime(spec)
        except SlurmSilent as silent:
            raise NodesRefused(spec.name, f"Slurm cannot be asked for nodes: {silent}") from None
        self._note(replace(self.record, runtime=runtime))
        script = batch_script(spec, pool_id, runtime)
        submitting = asyncio.ensure_future(self._submitted(arguments(spec, pool_id), script))
        try:
            # An interrupt waits for the answer: what was submitted can then be cancelled.
            job = await asyncio.shield(submitting)
        except asyncio.CancelledError:
            await asyncio.wait([submitting])
            raise
        except SlurmRefused as refused:
            raise NodesRefused(
                spec.name, f"Slurm refused the job: {spell_refused(str(refused))}"
            ) from None
        except SlurmSilent as silent:
            why = f"Slurm cannot be asked for nodes: {silent}"
            if not isinstance(silent, SlurmUnasked):
                why += (
                    ". A job that it has taken nevertheless is cancelled by the next pool, and by "
                    "`%sky sweep`"
                )
            raise NodesRefused(spec.name, why) from None
        self._note(replace(self.record, job=job))
        state = await self._started(spec, tell)
        try:
            nodes = await self.controller.nodes(state.nodes)
        except SlurmSilent as silent:
            raise StartError(
                spec.name, f"Slurm does not name the nodes of job {job}: {silent}"
            ) from None
        self._note(replace(self.record, nodes=tuple(nodes), started=state.starts))
        tell(Phase(f"job {job} has {', '.join(nodes)}"))
        self._limited(state, tell)
        return nodes

    async def _submitted(self, words: list[str], script: str) -> str:
        """Submit the job; its id. Raises `SlurmRefused`, `SlurmSilent`: it may appear later then."""
        try:
            return await self.controller.submit(self.record.pool_id, words, script)
        except SlurmSilent as silent:
            if not isinstance(silent, SlurmUnasked):
                self._note(replace(self.record, lost=time.time()))
            raise

    def _note(self, record: JobRecord) -> None:
        self.record = record
        record.write()

    async def _started(self, spec: PoolSpec, tell: Tell) -> JobState:
        """Wait for the job's nodes, and tell where it stands; raises `StartError` once it never starts."""
        began = heard = time.monotonic()
        pause, others, counted = _FIRST_LOOK, None, began + _SOON - _COUNT
        while True:
            now = time.monotonic()
            try:
                state = await self.controller.look(self.record.pool_id, self.record.job)
                if state is not None and state.waits and now - counted > _COUNT:
                    found = await self.controller.others(state.partition)
                    others, counted = None if found is None else max(0, found - 1), now
                heard = now
            except SlurmSilent as silent:
                if now - heard > _SILENT_LIMIT:
                    raise NodesRefused(spec.name, f"Slurm does not answer: {silent}") from None
                tell(Phase(f"Slurm does not answer now: {str(silent).partition(chr(10))[0]}"))
                await asyncio.sleep(_LOOK)
                continue
            if state is not None and state.runs:
                return state
            if state is None or not state.waits:
                said = await self.controller.output(self.record.pool_id)
                raise StartError(spec.name, spell_end(state), said)
            if why := why_never(state, spec.nodes):
                raise NodesRefused(spec.name, f"job {state.job} would never start: {why}")
            tell(Phase(spell_waiting(state, others, time.strftime("%Y-%m-%d"))))
            await asyncio.sleep(pause)
            pause = _LATER_LOOK if now - began > _LATER else min(_LOOK, _LONGER * pause)

    # ── its time limit ──────────────────────────────────────────────────────────────────

    def _limited(self, state: JobState, tell: Tell) -> None:
        """Note the time that a job has, and say what a short one means."""
        if state.left is None:
            return
        self._ends = time.monotonic() + state.left
        self._notice = notice_of(state.left)
        if self._notice < notice_of(None):
            tell(
                Remark(
                    f"job {state.job} has {state.left:.0f} s until its time limit: functions registered with sky.on_preempt "
                    f"are called at least {self._notice} s before"
                )
            )

    def notice(self) -> str:
        """How an agent that starts now is told that the time limit is near, as `node.spot_notices` reads it.

        Slurm sends a signal up to a minute early, and steps of a job that was there get none from it: where it
        may have come before there is an agent, the agent has a timer, too.
        """
        if self._ends is None:
            return f"signal:{self._notice}"
        left = max(0, round(self._ends - time.monotonic()))
        if left > _SURELY_HEARD and not self.record.is_current:
            return f"signal:{self._notice}"
        after = max(0, left - self._notice)
        return f"signal:{left - after}:{after}"

    # ── watched ─────────────────────────────────────────────────────────────────────────

    async def why_ended(self) -> str:
        """Why the job has ended, as Slurm says; "" if it has not, or Slurm does not answer.

        Calls within some seconds get one answer.
        """
        return await self._why.get()

    async def _why_ended(self) -> str:
        # Once it was not known for so long, nobody waits for it any more.
        until = time.monotonic() + (0.0 if self._has_ended else _KNOWN_AT_LAST)
        pause = _COMPLETING_LOOK
        while True:
            try:
                state = await self.controller.look(self.record.pool_id, self.record.job)
            except SlurmSilent:
                return ""
            if state is None or state.state != "COMPLETING" or time.monotonic() > until:
                why = spell_end(state)
                if state is not None and self.record.nodes:
                    why = why or spell_again(state, self.record.started)
                self._has_ended = bool(why)
                return why
            await asyncio.sleep(pause)
            pause = min(1.2 * pause, _SOON)

    # ── ended ───────────────────────────────────────────────────────────────────────────

    async def give_back(self) -> str:
        """End the job, once, and wait until it has left the queue; what of it may run on, in words."""
        return await self._ended.get()

    async def _end(self) -> str:
        if self.record.is_current:  # its keepers end with the agents
            await self.controller.forget(self.record.pool_id)
            self.record.remove()
            return ""
        if self.was_told and not self._has_ended:
            limit = _WITH_CONTAINER if self.record.runtime == "pyxis" else _BY_ITSELF
            with contextlib.suppress(SlurmSilent):
                await self._gone(limit, lambda state: not (state.waits or state.runs))
        what = f"job {self.record.job or 'of its name'}"
        by_itself = "The job ends by itself when its agents do. "
        return await taken_down(self.record, what, self._cancelled, by_itself)

    async def _cancelled(self) -> str:
        await self.controller.cancel(self.record.pool_id, self.record.job)
        # And all others of its name: an earlier one, or one whose submission was not answered.
        await self.controller.cancel(self.record.pool_id)
        state = await self._gone(_END_LIMIT, lambda state: not _takes_nodes(state))
        if state is not None:
            warnings.warn(spell_left(state, _END_LIMIT), stacklevel=2)
            return name_left(state)
        await self.controller.forget(self.record.pool_id)
        return ""

    async def end_orphan(self) -> bool:
        """Cancel the jobs of a pool that is gone, if there are any; raises `EngineFault`."""
        pool_id, found = self.record.pool_id, False
        if self.record.is_current:
            return False
        # The last one by its name: the answer to its submission may have been lost.
        for job in dict.fromkeys((self.record.job, self.record.before, "")):
            state = await self.controller.look(pool_id, job)
            if state is not None and (state.waits or state.runs):
                await self.controller.cancel(pool_id, job)
                found = True
        await self.controller.forget(pool_id)
        return found

    # ── another one in its place ────────────────────────────────────────────────────────

    async def give_up(self) -> None:
        """End a job that was to take the place of another one, of which the record is again."""
        try:
            await self._cancel_all_but(self.record.before)
        except SlurmSilent as silent:
            warnings.warn(
                f"Slurm did not confirm the end of job {self.record.job or 'of its name'}: {silent}. It ends by itself, "
                "and with the pool.",
                stacklevel=2,
            )

    def keep(self, given_up: Allocation) -> None:
        """Write down that this job stays the pool's; one that was given up may still appear, if its answer was lost."""
        self._note(replace(self.record, lost=max(self.record.lost, given_up.record.lost)))

    async def end_before(self) -> str:
        """End the job whose place this one has taken; its name, if Slurm does not confirm that."""
        before = self.record.before
        try:
            await self._cancel_all_but(self.record.job)
        except SlurmSilent:
            return f"job {before}"
        self._note(replace(self.record, before=""))
        return ""

    async def _cancel_all_but(self, kept: str) -> None:
        """Cancel the pool's other jobs, also those whose submission was not answered; raises `SlurmSilent`."""
        pool_id = self.record.pool_id
        known = [each for each in (self.record.job, self.record.before) if each not in ("", kept)]
        # What is known needs no list of jobs, and one that cannot be cancelled now keeps no other one.
        silent = await self._cancel_each(known)
        named = [job for job, whose in await self.controller.named() if whose == pool_id]
        silent += await self._cancel_each([job for job in named if job not in (kept, *known)])
        if silent:
            raise silent[-1]

    async def _cancel_each(self, jobs: Iterable[str]) -> list[SlurmSilent]:
        """Cancel each of these jobs; what Slurm did not confirm."""
        silent: list[SlurmSilent] = []
        for job in jobs:
            try:
                await self.controller.cancel(self.record.pool_id, job)
            except SlurmSilent as fault:
                silent.append(fault)
        return silent

    async def _gone(self, limit: float, is_gone: Callable[[JobState], bool]) -> JobState | None:
        """Wait until the job has gone; else its state after `limit` seconds. Raises `SlurmSilent`."""
        until, pause = time.monotonic() + limit, _FIRST_LOOK
        while True:
            state = await self.controller.look(self.record.pool_id, self.record.job)
            if state is None or is_gone(state):
                return None
            if time.monotonic() > until:
                return state
            await asyncio.sleep(pause)
            pause = min(_LOOK, _LONGER * pause)


def _takes_nodes(state: JobState) -> bool:
    return state.waits or state.runs or state.state == "COMPLETING"
