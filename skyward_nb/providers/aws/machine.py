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
from skyward_nb.providers.aws import ending, ledger
from skyward_nb.providers.aws.calls import Cloud
from skyward_nb.providers.aws.failures import AWSFault
from skyward_nb.providers.aws.user_data import LEASE
from skyward_nb.providers.base import AgentGone, MachineEnded
from skyward_nb.providers.ssh.line import HostLine
from skyward_nb.providers.ssh.machine import SSHMachine
from skyward_nb.words.errors import MissingDependency

_GROUPS_WAIT = 60.0
_ASK_AGAIN = 5.0
_LOOKS = (0.0, 1.5)
_OFF_LIMIT = 10.0
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
        self._ends: dict[str, str] = {}

    def has(self, line: HostLine) -> None:
        """A line by which one of the machines is reached."""
        self._lines.append(line)

    def lacks(self, line: HostLine) -> None:
        """Its machine is none of the pool's any more."""
        self._lines.remove(line)

    async def end_of(self, instance: str, *, anew: bool = False) -> str:
        """Why a machine is gone, as EC2 says now and then, or `anew`; empty where it does not say that it is."""
        now = time.monotonic()
        if anew or now - self._asked > _ASK_AGAIN:
            self._asked = now
            entry = ledger.find(self._pool_id)
            if entry is None:
                return "the pool was ended"
            with contextlib.suppress(AWSFault):
                for region in {each.region for each in entry.record.machines}:
                    self._ends |= await ending.ends_of(self._cloud, region, self._pool_id)
        return self._ends.get(instance, "")

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
            # Powered off, a machine is terminated, and that needs no credentials.
            await asyncio.gather(*(_power_off(line) for line in self._lines))
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
        self.rental: Rental = rental
        rental.has(line)

    async def _stream(self, name: str, *, bulk: bool = False) -> socket.socket:
        """A stream; raises `MachineEnded` where EC2 says that the machine has ended."""
        try:
            return await super()._stream(name, bulk=bulk)
        except OSError:
            if why := await self.rental.end_of(self._line.name):
                raise MachineEnded(why) from None
            raise
        except AgentGone:
            # An agent that its machine ends is gone a moment before EC2 says so everywhere.
            for pause in _LOOKS:
                await asyncio.sleep(pause)
                if why := await self.rental.end_of(self._line.name, anew=True):
                    raise MachineEnded(why) from None
            raise

    async def let_go(self) -> None:
        """Hang up on the machine, which is none of the pool's any more."""
        self.rental.lacks(self._line)
        self._store.close()
        await self._line.close()

    async def release(self) -> None:
        """End the machine with all others of its pool: what runs there goes with it."""
        try:
            await self.rental.give_back()
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


async def _power_off(line: HostLine) -> None:
    with contextlib.suppress(ShellGone, TimeoutError):
        await line.run(_OFF, limit=_OFF_LIMIT)
