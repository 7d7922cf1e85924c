"""A rented machine of a pool: reached like any host, and terminated at the pool's end."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from skyward_nb.bootstrap.environment import Environment
from skyward_nb.bootstrap.remote_shell import ShellGone
from skyward_nb.providers.aws import baking, end_timers, network, rental_records, termination
from skyward_nb.providers.aws.api_errors import AWSError
from skyward_nb.providers.aws.callers import callers_for
from skyward_nb.providers.aws.client import AWSClient
from skyward_nb.providers.aws.rental_records import RentalFolder
from skyward_nb.providers.aws.stopping import NotStopped, stop
from skyward_nb.providers.aws.user_data import LEASE
from skyward_nb.providers.far.far_machine import FarMachine, Opening
from skyward_nb.providers.far.host_setup import folder_of
from skyward_nb.providers.far.line_protocol import Line
from skyward_nb.providers.far.shared_answer import SharedAnswer
from skyward_nb.providers.provider_protocol import AgentGone, MachineEnded
from skyward_nb.words.errors import MissingDependency
from skyward_nb.words.offers import Bill

T = TypeVar("T")
_GROUPS_WAIT = 60.0
_ASK_AGAIN = 5.0
_LET_AGAIN = 15.0
_LOOKS = (0.0, 1.5)
_OFF_LIMIT = 10.0
_REACH_LIMIT = 30.0
_OFF = (
    'if [ "$(id -u)" = 0 ]; then p=; else p="sudo -n"; fi; '
    "(sleep 1; $p systemctl poweroff || $p poweroff) > /dev/null 2>&1 < /dev/null &"
)


class Rental:
    """All machines that a pool has rented; they are ended together."""

    def __init__(self, cloud: AWSClient, pool_id: str) -> None:
        self._cloud = cloud
        self._pool_id = pool_id
        self._ended = SharedAnswer(self._end)
        self._lines: list[Line] = []
        self._has_record = SharedAnswer(self._ask, _ASK_AGAIN)
        self._was_let_in = SharedAnswer(self._let_in, _LET_AGAIN, overtakes=True)
        self.callers: tuple[str, ...] = ()
        """The addresses from which this side came when it was last let in."""
        self._ends: dict[str, str] = {}
        self._agents: dict[Line, Callable[[], Awaitable[None]]] = {}
        self._bill: Bill | None = None
        self._may_stop = False
        self._for_good = False
        self._image: tuple[Line, str] | None = None
        self.kept: str = ""
        """The machines that were stopped, not ended, until when, and what that costs; the image that was made of one."""

    def has(self, line: Line, end_agent: Callable[[], Awaitable[None]]) -> None:
        """Add the line to a machine, and how its agent and the pool's files there are removed."""
        self._lines.append(line)
        self._agents[line] = end_agent

    def may_stop(self, bill: Bill | None) -> None:
        """Have machines of a pool with `warm=` stopped at its end, if its bill allows that."""
        self._may_stop, self._bill = True, bill

    def end_for_good(self) -> None:
        """Have machines ended even if another process stops them, or makes an image of one."""
        self._for_good = True

    def bake(self, line: Line, image: str) -> None:
        """Have an image of this name made of the machine of a line, before its end."""
        self._image = line, image

    def lacks(self, line: Line) -> None:
        """Remove the line to a machine that left the pool."""
        self._lines.remove(line)
        del self._agents[line]

    async def end_of(self, instance: str, *, anew: bool = False) -> str:
        """Why a machine is gone, by EC2's last answer, or a new one with `anew`; "" if it is not gone."""
        is_there = await self._has_record.get(anew=anew)
        return self._ends.get(instance, "") if is_there else "the pool was ended"

    def has_ended(self, instance: str) -> bool:
        """Whether EC2 has said that a machine is gone, without asking again."""
        return instance in self._ends

    async def _ask(self) -> bool:
        """Ask EC2 which machines have ended; whether the pool still has a record."""
        entry = rental_records.find(self._pool_id)
        if entry is None:
            return False
        with contextlib.suppress(AWSError):
            for region in {each.region for each in entry.record.machines}:
                told = await termination.asked(self._cloud, region, entry.record.pool_id)
                ends = termination.ends_in(told)
                self._ends |= {name: each.why for name, each in ends.items()}
                gone = await termination.unlisted(self._cloud, region, entry.record, told)
                self._ends |= dict.fromkeys(
                    gone, "EC2 lists it no more, so it ended over an hour ago"
                )
        return True

    async def let_in(self) -> bool:
        """Let this side in from a new address, if it has one; whether it has.

        Calls within some seconds get one answer.
        """
        return await self._was_let_in.get()

    async def _let_in(self) -> bool:
        entry = rental_records.find(self._pool_id)
        if entry is None or all(each.kind != "group" for each in entry.record.made):
            return False
        try:
            record = entry.record
            # By a jump host, or from networks that were named, nobody comes from a new address.
            if record.jump or record.callers:
                return False
            private = [each.private for each in record.machines if each.public is None]
            callers = await callers_for("", (), private[0] if private else "")
            is_new = callers != self.callers and await network.let_in(self._cloud, entry, callers)
        except (AWSError, MissingDependency):
            return False
        self.callers = callers
        return is_new

    async def give_back(self) -> str:
        """End all machines, once; returns those that may run on."""
        return await self._ended.get()

    async def _end(self) -> str:
        entry = rental_records.find(self._pool_id)
        if entry is None or self._is_left_to_another():
            return ""  # another process has ended it, or does
        agents = list(self._agents.values())
        if self._image is not None:
            self._say(await self._baked(entry, *self._image))
            agents = []
        if self._may_stop and entry.record.warmth is not None:
            try:
                self._say(await stop(self._cloud, entry, self._lines, self._bill, agents))
            except NotStopped as why:
                self._say(f"no machine was stopped, as warm= asks: {why}; they are ended")
            else:
                return ""
        if self._is_left_to_another():
            return ""
        try:
            left = await termination.end(self._cloud, entry, wait=_GROUPS_WAIT)
        except (AWSError, MissingDependency, OSError) as error:
            left = termination.Leftovers(("its machines",), why=str(error))
        if left.machines:
            await power_off(self._lines)
        if left.machines or left.why:
            warnings.warn(
                f"pool {entry.record.name!r}: AWS did not confirm the end of {left}. The machines were "
                "told to power off, which ends them, and do so by themselves when nobody needs them; "
                "`%sky sweep` and the next pool check again.",
                stacklevel=2,
            )
        return ", ".join(left.machines)

    async def _baked(self, entry: RentalFolder, line: Line, image: str) -> str:
        """Make an image of a machine once all agents have ended; what came of it, in words."""
        try:
            if not entry.claim_end():
                raise baking.NotBaked("another process has begun to end the machines")
            await end_timers.side_by_side(*(end() for end in self._agents.values()))
            return await baking.bake(self._cloud, entry.record, line, image)
        except baking.NotRestored as why:
            if not self._may_stop or entry.record.warmth is None:
                return why.said
            self._may_stop = False
            return f"{why}; no machine is stopped, as warm= asks: they are ended"
        except Exception as error:  # noqa: BLE001 - whatever it is, machines are to end
            return f"no image {image} was made: {error}"

    def _is_left_to_another(self) -> bool:
        """Whether another process is about to stop the machines, or makes an image of one and then ends them."""
        entry = rental_records.find(self._pool_id)
        if entry is None or self._for_good or not entry.record.is_ended_elsewhere:
            return False
        self._say(f"{entry.record.maker} stops its machines, or bakes and ends them")
        return True

    def _say(self, words: str) -> None:
        self.kept = "; ".join(filter(None, (self.kept, words)))


class AWSMachine(FarMachine):
    """A machine of a rental, with an agent that renews its lease."""

    def __init__(
        self,
        pool: str,
        folder_id: str,
        node: int,
        line: Line,
        rental: Rental,
        environment: Environment | None = None,
        *,
        spot: bool = False,
    ) -> None:
        super().__init__(pool, folder_id, node, line, environment)
        self.variables: Mapping[str, str] = {"SKYWARD_LEASE_FILE": LEASE} | (
            {"SKYWARD_NOTICES": "1"} if spot else {}
        )
        self.rental: Rental = rental
        rental.has(line, self._end_agent)

    async def _opened(self, name: str, opening: Opening[T]) -> T:
        """Open a channel; raises `MachineEnded` if EC2 says that the machine has ended."""
        try:
            return await super()._opened(name, opening)
        except OSError:
            if why := await self.rental.end_of(self._line.name):
                raise MachineEnded(why) from None
            if not await self.rental.let_in():
                raise
        except AgentGone:
            # If its machine ends, an agent is gone a moment before EC2 says so everywhere.
            for pause in _LOOKS:
                await asyncio.sleep(pause)
                if why := await self.rental.end_of(self._line.name, anew=True):
                    raise MachineEnded(why) from None
            raise
        # This side has a new address, which is let in now.
        return await super()._opened(name, opening)

    async def agent_log(self, most: int) -> str:
        """The end of the agent's log; "" if the machine has ended, where a login would wait in vain."""
        if self.rental.has_ended(self._line.name):
            return ""
        return await super().agent_log(most)

    async def let_go(self) -> None:
        """Hang up on a machine that left the pool."""
        self.rental.lacks(self._line)
        self._store.close()
        await self._line.close()

    def may_stop(self, bill: Bill | None) -> None:
        """Have the machines of the pool stopped, where it was made with `warm=`."""
        self.rental.may_stop(bill)

    def end_for_good(self) -> None:
        """Have the machines of the pool ended, whatever another process does with them."""
        self.rental.end_for_good()

    def bake(self, image: str) -> None:
        """Have an image of this name made of it at the pool's end."""
        self.rental.bake(self._line, image)

    @property
    def kept(self) -> str:
        """What was stopped, not ended, and which image was made, in words."""
        return self.rental.kept

    async def release(self) -> str:
        """End the machine with all others of its pool, or stop it with them."""
        try:
            return await self.rental.give_back()
        finally:
            self._store.close()
            await self._line.close()


def machines_of(
    pool: str,
    pool_id: str,
    rental: Rental,
    lines: Sequence[tuple[Line, Environment | None]],
    *,
    nodes: Sequence[int] | None = None,
    spot: bool = False,
) -> tuple[AWSMachine, ...]:
    """Machines of these lines, for these `nodes`, or for all, head first."""
    return tuple(
        AWSMachine(pool, folder_of(pool_id, node), node, line, rental, environment, spot=spot)
        for node, (line, environment) in zip(nodes or range(len(lines)), lines, strict=True)
    )


async def power_off(lines: Sequence[Line]) -> None:
    """Power off the machines that can be reached, which terminates them, without credentials."""

    async def one(line: Line) -> None:
        with contextlib.suppress(ShellGone, TimeoutError):
            async with asyncio.timeout(_REACH_LIMIT):
                await line.run(_OFF, limit=_OFF_LIMIT)

    await asyncio.gather(*map(one, lines))
