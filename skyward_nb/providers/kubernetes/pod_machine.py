"""A pod as a machine of a pool, and the line to it: `kubectl exec`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TypeVar

from skyward_nb.bootstrap.environment import Environment
from skyward_nb.providers.base import AgentGone, MachineEnded
from skyward_nb.providers.far.door_machine import DoorMachine
from skyward_nb.providers.far.exec_line import ExecLine
from skyward_nb.providers.far.far_machine import Opening
from skyward_nb.providers.far.host_setup import folder_of
from skyward_nb.providers.far.keeper import first, prelude
from skyward_nb.providers.far.login_errors import Unreachable
from skyward_nb.providers.kubernetes.cluster import kubectl
from skyward_nb.providers.kubernetes.manifest import CONTAINER, KEEP
from skyward_nb.providers.kubernetes.pod_records import PodRecord
from skyward_nb.providers.kubernetes.pool_job import PoolJob

T = TypeVar("T")
_NOISE = ("command terminated with exit code",)
"""What kubectl adds to the words of a command that failed there."""


def line_to(record: PodRecord, pod: str) -> ExecLine:
    """The line to a pod: each command is one of `kubectl exec`; its keeper is waited for."""

    def argv_for(command: Sequence[str]) -> list[str]:
        words = ["exec", "-i", pod, "-c", CONTAINER, "--", *command]
        return kubectl(record.context, record.namespace, words)

    line = ExecLine(
        pod,
        argv_for,
        place=f"pod {pod}",
        prelude=prelude(KEEP),
        first=first(KEEP),
        noise=_NOISE,
        environ=record.environ,
    )
    line.reaching = "reaching pods"
    return line


class PodMachine(DoorMachine):
    """A pod of a pool's Job; `job` is that of all of them."""

    def __init__(
        self,
        pool: str,
        node: int,
        line: ExecLine,
        job: PoolJob,
        environment: Environment | None = None,
    ) -> None:
        super().__init__(pool, folder_of(job.record.pool_id, node), node, line, environment)
        self.keep: str = KEEP
        self.job: PoolJob = job
        # From outside, the addresses of pods are another network's.
        self.is_near: bool = "KUBERNETES_SERVICE_HOST" in os.environ and not job.record.context
        self.variables: Mapping[str, str] = {"SKYWARD_NOTICES": f"signal:{job.record.notice}:pod"}

    async def _opened(self, name: str, opening: Opening[T]) -> T:
        """Open a channel; raises `MachineEnded` if Kubernetes says that the pod has ended."""
        try:
            opened = await super()._opened(name, opening)
        except (OSError, AgentGone, Unreachable):
            if why := await self.why_ended():
                raise MachineEnded(why) from None
            raise
        self.job.was_told = True
        return opened

    async def why_ended(self) -> str:
        """Why its pod has ended, as Kubernetes says; "" if it has not, or Kubernetes does not answer."""
        return await self.job.why_ended(self.name)

    async def agent_log(self, most: int) -> str:
        """The end of the agent's log; "" once its pod has ended."""
        if await self.why_ended():
            return ""
        return await super().agent_log(most)

    async def release(self) -> str | None:
        """Delete the Job with all of its pods, and wait until they are gone."""
        try:
            return await self.job.give_back()
        finally:
            self._store.close()
            await self._line.close()
