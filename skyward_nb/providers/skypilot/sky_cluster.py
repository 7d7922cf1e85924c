"""The cluster of a pool: launched, watched, and taken down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from msgspec.structs import replace

from skyward_nb.protocol.events import CostChanged, Phase
from skyward_nb.providers.far.shared_answer import SharedAnswer
from skyward_nb.providers.far.take_down import taken_down
from skyward_nb.providers.provider_protocol import Tell
from skyward_nb.providers.skypilot.cli_answers import (
    LaunchPlan,
    advised,
    chosen_plan,
    last_words,
    progress,
    why_gone,
)
from skyward_nb.providers.skypilot.cluster_records import ClusterRecord
from skyward_nb.providers.skypilot.cluster_request import launch_arguments
from skyward_nb.providers.skypilot.plan_quoting import agreed_price, why_too_dear
from skyward_nb.providers.skypilot.sky_program import SkyAnswer, SkyProgram, SkySilent
from skyward_nb.providers.ssh.host_keys import unpin
from skyward_nb.words.errors import NodesRefused, NothingFits, StartError
from skyward_nb.words.offers import Bill
from skyward_nb.words.spec import PoolSpec

_ASK_AGAIN = 20.0


class RentedCluster:
    """The cluster of one pool, which all of its machines share."""

    def __init__(self, record: ClusterRecord) -> None:
        self.record: ClusterRecord = record
        self.program: SkyProgram = SkyProgram(record.access)
        self._ended = SharedAnswer(self._end)
        self._why = SharedAnswer(self._why_ended, _ASK_AGAIN)

    # ── launched ────────────────────────────────────────────────────────────────────────

    async def launch(self, spec: PoolSpec, tell: Tell) -> None:
        """Have SkyPilot rent machines and start keepers on them; raises `StartError`."""
        try:
            self.program.path()
        except SkySilent as silent:
            raise NodesRefused(spec.name, str(silent)) from None
        self._note(replace(self.record, began=time.time()))
        words = launch_arguments(spec, self.record.pool_id, str(self.record.task_file()))
        tell(Phase("SkyPilot looks for machines"))

        def heard(line: str) -> None:
            if said := progress(line):
                tell(Phase(f"SkyPilot: {said}"))

        try:
            answer = await self._launched(words, heard)
            if answer.code:
                said = advised(last_words(answer.text) or f"it ended with {answer.code}")
                raise NodesRefused(spec.name, f"SkyPilot rented nothing: {said}")
            # It writes the SSH config, too.
            state = await self.program.look(self.record.cluster)
        except SkySilent as silent:
            raise NodesRefused(spec.name, f"SkyPilot cannot be asked: {silent}") from None
        if why := why_gone(state, self.record.cluster):
            raise StartError(spec.name, why)
        plan = chosen_plan(answer.text)
        self._note(replace(self.record, dollars=plan.dollars if plan else agreed_price(spec)))
        tell(CostChanged(self.bill(spec, plan)))
        if why := why_too_dear(spec, self.record.dollars):
            raise NothingFits(
                f"SkyPilot rented elsewhere than it had planned: {why}. It is taken down"
            )

    async def _launched(self, words: list[str], heard: Callable[[str], None]) -> SkyAnswer:
        """Run `sky launch`; where it was cancelled, and SkyPilot did not confirm that, the cluster may appear later. Raises `SkySilent`."""
        try:
            return await self.program.run(words, heard=heard)
        except asyncio.CancelledError:
            if self.program.may_go_on:
                self._note(replace(self.record, lost=time.time()))
            raise

    def bill(self, spec: PoolSpec, plan: LaunchPlan | None) -> Bill:
        """What the machines cost, by SkyPilot's catalogue."""
        many = f"{self.record.nodes} × " if self.record.nodes > 1 else ""
        return Bill(
            dollars=self.record.dollars,
            began=self.record.began,
            what=f"{many}{plan.instance} on {plan.infra}" if plan else self.record.cluster,
            source="SkyPilot's catalogue",
            max_cost=spec.max_cost,
        )

    def _note(self, record: ClusterRecord) -> None:
        self.record = record
        record.write()

    def reached(self) -> None:
        """Note that its machines are there: others can find them."""
        self._note(replace(self.record, is_up=True))

    def seconds_for(self, dollars: float) -> float | None:
        """Seconds from now until it has cost so many dollars; None without a price."""
        if not self.record.dollars:
            return None
        spent = time.time() - self.record.began
        return max(1.0, 3600 * dollars / self.record.dollars - spent)

    # ── watched ─────────────────────────────────────────────────────────────────────────

    async def why_ended(self) -> str:
        """Why its machines are gone, as SkyPilot says; "" if they are not, or it does not answer."""
        return await self._why.get()

    async def _why_ended(self) -> str:
        name = self.record.cluster
        try:
            return why_gone(await self.program.look(name, refresh=True), name)
        except SkySilent:
            return ""

    # ── taken down ──────────────────────────────────────────────────────────────────────

    async def take_down(self) -> str:
        """Take it down, once, and see that it is gone; what of it may run on and cost, in words."""
        return await self._ended.get()

    async def _end(self) -> str:
        name = self.record.cluster
        costs = f"It may cost money: `sky down {name}`, and see `sky status --refresh`. "
        return await taken_down(self.record, f"cluster {name}", self._down, costs)

    async def _down(self) -> str:
        name = self.record.cluster
        why = await self.program.down(name)
        state = await self.program.look(name, refresh=True)
        if state is not None:
            raise SkySilent(why or f"it is still {state.status}")
        unpin(self.record.hosts)  # not in a thread: there are none at the end of this process
        return ""

    async def end_orphan(self) -> bool:
        """Take down the cluster of a pool that is gone, if it is there; raises `SkySilent` unless SkyPilot says that it is gone."""
        found = await self.program.look(self.record.cluster)
        # SkyPilot may not know it yet, while it still launches it.
        await self._down()
        return found is not None
