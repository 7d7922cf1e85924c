"""A machine of a SkyPilot cluster as a machine of a pool, and the line to it: SSH, beside a keeper."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from skyward_nb.bootstrap.environment import Environment
from skyward_nb.bootstrap.remote_shell import ScriptResult, ShellGone
from skyward_nb.providers.far.far_machine import Opening
from skyward_nb.providers.far.host_setup import folder_of
from skyward_nb.providers.far.keeper import KeptMachine, first, prelude
from skyward_nb.providers.far.login_errors import Unreachable
from skyward_nb.providers.provider_protocol import AgentGone, MachineEnded
from skyward_nb.providers.skypilot.cluster_request import keep_of
from skyward_nb.providers.skypilot.sky_cluster import RentedCluster
from skyward_nb.providers.ssh.dialer import Dialer
from skyward_nb.providers.ssh.ssh_line import HostLine
from skyward_nb.words.hosts import Host

T = TypeVar("T")
_FIRST_LIMIT = 120.0
_BEAT = 25.0


class RentedHostLine(HostLine):
    """The line to a machine whose keeper has the folder `keep`; the keeper of a new one is waited for."""

    def __init__(self, host: Host, dialer: Dialer, keep: str, *, is_new: bool = False) -> None:
        super().__init__(host, dialer)
        self._keep = keep
        self._waits = is_new
        self.beat: float = _BEAT if is_new else 0.0

    async def connect(self) -> None:
        """Log in, and wait for the keeper; raises `Unreachable`."""
        await super().connect()
        if not self._waits:
            return
        try:
            ran = await self.run(first(self._keep), limit=_FIRST_LIMIT)
        except (ShellGone, TimeoutError) as error:
            raise Unreachable(self.name, str(error) or "its keeper did not start") from error
        if ran.code:
            raise Unreachable(self.name, ran.err.strip() or "its keeper did not start")
        self._waits = False

    async def _run(
        self,
        script: str,
        parts: Iterable[bytes],
        limit: float | None,
        heard: Callable[[str], None],
        told: Callable[[int], None],
    ) -> ScriptResult:
        whole = f"{prelude(self._keep)}\n{script}"
        return await super()._run(whole, parts, limit, heard, told)


class SkyPilotMachine(KeptMachine):
    """A machine of a pool's cluster; `cluster` is that of all of them, which may cost `max_cost` dollars."""

    def __init__(
        self,
        pool: str,
        node: int,
        line: HostLine,
        cluster: RentedCluster,
        environment: Environment | None = None,
        max_cost: float | None = None,
    ) -> None:
        pool_id = cluster.record.pool_id
        super().__init__(pool, folder_of(pool_id, node), node, line, environment)
        self.keep: str = keep_of(pool_id, node)
        self.cluster: RentedCluster = cluster
        self._max_cost = max_cost

    async def start_agent(self, idle: float, ttl: float, preload: list[str]) -> None:
        """See `Machine.start_agent`; the agent, and with it the machine, ends for `max_cost`, too."""
        if self._max_cost is not None:
            lasts = self.cluster.seconds_for(self._max_cost)
            ttl = min(ttl or lasts, lasts) if lasts is not None else ttl
        await super().start_agent(idle, ttl, preload)

    async def _opened(self, name: str, opening: Opening[T]) -> T:
        """Open a channel; raises `MachineEnded` if SkyPilot says that the machine is gone."""
        try:
            return await super()._opened(name, opening)
        except (OSError, AgentGone):
            if why := await self.why_ended():
                raise MachineEnded(why) from None
            raise

    async def why_ended(self) -> str:
        """Why its cluster is gone, as SkyPilot says; "" if it is not, or SkyPilot does not answer."""
        return await self.cluster.why_ended()

    async def release(self) -> str | None:
        """Take the cluster down with all of its machines, and see that it is gone."""
        try:
            return await self.cluster.take_down()
        finally:
            self._store.close()
            await self._line.close()
