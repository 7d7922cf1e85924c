"""The placement group of a pool, with its actors: asked for, waited for, watched and ended."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from skyward_nb.protocol.events import Phase
from skyward_nb.providers.far.shared_answer import SharedAnswer
from skyward_nb.providers.far.take_down import taken_down
from skyward_nb.providers.provider_protocol import Tell
from skyward_nb.providers.ray.group_records import GroupRecord
from skyward_nb.providers.ray.group_words import (
    CREATED,
    bundle,
    group_name,
    keep_of,
    keeper_program,
    names_of,
    spell_pending,
    why_infeasible,
)
from skyward_nb.providers.ray.helper_client import RayHelper
from skyward_nb.providers.ray.messages import (
    ActorFaults,
    EndGroup,
    GroupLeft,
    GroupState,
    LookAtActors,
    LookAtGroup,
    StartActors,
    StartedActor,
    StartedActors,
    StartGroup,
)
from skyward_nb.providers.ray.ray_errors import RaySilent
from skyward_nb.system.awaiting import to_its_end
from skyward_nb.words.errors import NodesRefused, StartError
from skyward_nb.words.spec import PoolSpec

_FIRST_LOOK = 0.1
_LOOK = 2.0
_BY_ITSELF = 8.0
"""Seconds in which agents that were told to stop may end their keepers."""
_ASK_AGAIN = 2.0
_WHY_LIMIT = 15.0
_END_LIMIT = 120.0
_ACTORS_LIMIT = 90.0
_SLOW = 5.0


class NodeGroup:
    """The group of one pool, which all of its machines share."""

    def __init__(self, record: GroupRecord, helper: RayHelper) -> None:
        self.record: GroupRecord = record
        self.helper: RayHelper = helper
        self.was_told: bool = False
        """Whether an agent of it was reached, and thus told to stop."""
        self._name = group_name(record.pool_id)
        self._ended = SharedAnswer(self._end)
        self._last_faults = SharedAnswer(self._faults, _ASK_AGAIN)

    # ── asked for ───────────────────────────────────────────────────────────────────────

    async def begin(self, spec: PoolSpec, tell: Tell) -> list[StartedActor]:
        """Ask for the group and wait until its actors run, in its order. Raises `StartError`."""
        tell(Phase(f"reaching Ray at address={self.record.access.address}"))
        try:
            await self.helper.started()
        except RaySilent as silent:
            raise NodesRefused(spec.name, str(silent)) from None
        self.record = replace(self.record, cluster=self.helper.cluster)
        self.record.write()
        bundles = [bundle(spec)] * spec.nodes
        try:
            asking = self.helper.ask(StartGroup(self._name, bundles), dict[str, str])
            # An interrupt waits for the answer: what was asked for can then be removed.
            await to_its_end(asyncio.ensure_future(asking))
            await self._placed(spec, tell)
            tell(Phase("Ray starts actors on its nodes"))
            slow = Phase("Ray starts actors on its nodes: one may be fetching an image")
            later = asyncio.get_running_loop().call_later(_SLOW, tell, slow)
            keep = keep_of(self.record.pool_id, "{number}")
            request = StartActors(self._name, bundles, keeper_program(self.record.pool_id), keep)
            try:
                started = await self.helper.ask(request, StartedActors, _ACTORS_LIMIT)
            finally:
                later.cancel()
        except RaySilent as silent:
            raise NodesRefused(spec.name, f"Ray gave no nodes: {silent}") from None
        names = names_of(started.actors)
        self.record = replace(self.record, nodes=tuple(names))
        self.record.write()
        tell(Phase(f"Ray has given {', '.join(names)}"))
        return started.actors

    async def _placed(self, spec: PoolSpec, tell: Tell) -> None:
        """Wait for the group's nodes, and tell where it stands; raises `StartError` if none can hold it."""
        pause = _FIRST_LOOK
        while True:
            state = await self.helper.ask(LookAtGroup(self._name), GroupState)
            if state.state == CREATED:
                return
            if state.state == "REMOVED":
                raise StartError(spec.name, "its placement group was removed as it waited")
            why = why_infeasible(state, spec)
            if why and not self.record.access.waits:
                raise NodesRefused(spec.name, why)
            if pause > _FIRST_LOOK:  # most groups are placed at once
                tell(Phase(spell_pending(state, spec)))
            await asyncio.sleep(pause)
            pause = min(_LOOK, 1.5 * pause)

    # ── watched ─────────────────────────────────────────────────────────────────────────

    async def why_ended(self, number: int) -> str:
        """Why an actor is gone, as Ray says; "" if it is not, or Ray does not answer."""
        faults = await self._last_faults.get()
        return faults[number] if number < len(faults) else ""

    async def _faults(self) -> list[str]:
        request = LookAtActors(self._name, self.record.count)
        try:
            return (await self.helper.ask(request, ActorFaults, _WHY_LIMIT)).faults
        except RaySilent:
            return []

    # ── ended ───────────────────────────────────────────────────────────────────────────

    async def give_back(self) -> str:
        """Remove the group with its actors, once; what of it may still be there, in words."""
        return await self._ended.get()

    async def _end(self) -> str:
        what = f"placement group {self._name}"
        by_itself = "It is removed when its agents end. "
        try:
            return await taken_down(self.record, what, self._removed, by_itself)
        finally:
            await self.helper.let_go(self)  # the lines to its nodes may have been closed before

    async def _removed(self) -> str:
        return ", ".join((await self._end_group()).left)

    async def _end_group(self) -> GroupLeft:
        patience = _BY_ITSELF if self.was_told else 0.0
        request = EndGroup(self._name, self.record.count, patience)
        return await self.helper.ask(request, GroupLeft, _END_LIMIT)

    async def end_orphan(self) -> bool:
        """Remove the group of a pool that is gone, if it is there; raises `RaySilent` unless Ray says that it is gone."""
        try:
            found = await self._end_group()
            if found.left:
                raise RaySilent(f"{', '.join(found.left)} is still there")
        finally:
            await self.helper.let_go(self)
        return found.was_there
