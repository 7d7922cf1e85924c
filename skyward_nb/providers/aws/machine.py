"""One machine of a pool that was rented: reached like any host, and ended instead of let go."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
import warnings
from collections.abc import Mapping, Sequence

from skyward_nb.bootstrap.environment import Environment
from skyward_nb.bootstrap.shell import ShellGone
from skyward_nb.providers.aws import ending, ledger, network
from skyward_nb.providers.aws.calls import Cloud
from skyward_nb.providers.aws.failures import AWSFault
from skyward_nb.providers.aws.user_data import LEASE
from skyward_nb.providers.base import AgentGone
from skyward_nb.providers.ssh.line import HostLine
from skyward_nb.providers.ssh.machine import SSHMachine
from skyward_nb.words.errors import MissingDependency

_GROUPS_WAIT = 60.0
_ASK_AGAIN = 5.0
_LET_AGAIN = 15.0
_OFF_LIMIT = 10.0
_REACH_LIMIT = 30.0
_OFF = (
    'if [ "$(id -u)" = 0 ]; then p=; else p="sudo -n"; fi; '
    "(sleep 1; $p systemctl poweroff || $p poweroff) > /dev/null 2>&1 < /dev/null &"
)


class Rental:
    """All that a pool has rented; it is given back as one."""

    def __init__(self, cloud: Cloud, pool_id: str) -> None:
        self._cloud = cloud
        self._pool_id = pool_id
        self._ending: asyncio.Task[None] | None = None
        self._lines: list[HostLine] = []
        self._asked = float("-inf")
        self._states: dict[str, str] = {}
        self._letting: asyncio.Task[bool] | None = None
        self._let_at = 0.0
        self._callers: tuple[str, ...] = ()

    def has(self, line: HostLine) -> None:
        """A line by which one of the machines is reached."""
        self._lines.append(line)

    async def has_ended(self, instance: str) -> bool:
        """Whether EC2 says that a machine is gone; False where it does not say."""
        now = time.monotonic()
        if now - self._asked > _ASK_AGAIN:
            self._asked = now
            entry = ledger.find(self._pool_id)
            if entry is None:
                return True
            with contextlib.suppress(AWSFault):
                for region in {each.region for each in entry.record.machines}:
                    self._states |= await ending.states_of(self._cloud, region, self._pool_id)
        state = self._states.get(instance)
        return state is not None and not ending.is_alive(state)

    async def let_in(self) -> bool:
        """Have the machines let in who comes from another address than before; whether that is so.

        Whoever asks within some seconds gets one answer.
        """
        now = time.monotonic()
        if self._letting is None or now - self._let_at > _LET_AGAIN:
            self._let_at = now
            self._letting = asyncio.ensure_future(self._let_in())
        return await asyncio.shield(self._letting)

    async def _let_in(self) -> bool:
        entry = ledger.find(self._pool_id)
        if entry is None or all(each.kind != "group" for each in entry.record.made):
            return False
        try:
            callers = await network.caller_networks()
            is_new = callers != self._callers and await network.let_in(self._cloud, entry, callers)
        except (AWSFault, MissingDependency):
            return False
        self._callers = callers
        return is_new

    async def give_back(self) -> None:
        """End all machines, and see that they end; whoever asks, it is done once."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        entry = ledger.find(self._pool_id)
        if entry is None:
            return  # another process has seen to it
        try:
            left = await ending.end(self._cloud, entry, wait=_GROUPS_WAIT)
        except (AWSFault, MissingDependency, OSError) as error:
            left = ending.Left(("its machines",), why=str(error))
        if left.machines:
            await power_off(self._lines)
        if left.machines or left.why:
            warnings.warn(
                f"pool {entry.record.name!r}: AWS did not say that this is gone: {left}. The machines "
                "were told to power off, which ends them, and do so by themselves when nobody needs "
                "them; `%sky sweep` looks again, and so does the next pool.",
                stacklevel=2,
            )


class AWSMachine(SSHMachine):
    """A machine of a rental, with an agent that renews its lease."""

    def __init__(
        self,
        pool: str,
        folder_id: str,
        node: int,
        line: HostLine,
        rental: Rental,
        environment: Environment | None = None,
        *,
        spot: bool = False,
    ) -> None:
        super().__init__(pool, folder_id, node, line, environment)
        self.variables: Mapping[str, str] = {"SKYWARD_LEASE_FILE": LEASE} | (
            {"SKYWARD_NOTICES": "1"} if spot else {}
        )
        self._rental = rental
        rental.has(line)

    async def connect(self) -> socket.socket:
        """A stream to the agent; raises `AgentGone` also where EC2 says that the machine has ended."""
        try:
            return await super().connect()
        except OSError:
            if await self._rental.has_ended(self._line.name):
                raise AgentGone from None
            if not await self._rental.let_in():
                raise
        # This side has got another address: in another place, or from its provider.
        return await super().connect()

    async def release(self) -> None:
        """End the machine with all others of its pool: what runs there goes with it."""
        try:
            await self._rental.give_back()
        finally:
            self._store.close()
            await self._line.close()


def machines_of(
    pool: str,
    pool_id: str,
    rental: Rental,
    lines: Sequence[tuple[HostLine, Environment | None]],
    *,
    spot: bool = False,
) -> tuple[AWSMachine, ...]:
    """Machines of these lines, head first."""
    from skyward_nb.providers.ssh.readying import folder_of

    return tuple(
        AWSMachine(pool, folder_of(pool_id, node), node, line, rental, environment, spot=spot)
        for node, (line, environment) in enumerate(lines)
    )


async def power_off(lines: Sequence[HostLine]) -> None:
    """Have the machines that can be reached end: powered off, one is terminated, without credentials."""
    await asyncio.gather(*(_power_off(line) for line in lines))


async def _power_off(line: HostLine) -> None:
    with contextlib.suppress(ShellGone, TimeoutError):
        async with asyncio.timeout(_REACH_LIMIT):
            await line.run(_OFF, limit=_OFF_LIMIT)
