"""A pod as a machine of a pool, and the line to it: `kubectl exec`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from skyward_nb.bootstrap.environment import Environment
from skyward_nb.providers.far.engine_machine import EngineAllocation, EngineMachine
from skyward_nb.providers.far.exec_line import ExecLine
from skyward_nb.providers.far.host_setup import folder_of
from skyward_nb.providers.far.keeper import first, prelude
from skyward_nb.providers.kubernetes.cluster import kubectl
from skyward_nb.providers.kubernetes.manifest import CONTAINER, KEEP
from skyward_nb.providers.kubernetes.pod_records import PodRecord
from skyward_nb.providers.kubernetes.pool_job import PoolJob

_NOISE = ("command terminated with exit code",)
"""What kubectl adds to the words of a command that failed there."""


def line_to(record: PodRecord, pod: str, *, is_new: bool = False) -> ExecLine:
    """The line to a pod: each command is one of `kubectl exec`; its keeper is waited for.

    A new pod is asked many things, which share a command.
    """

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
        keeps_command=is_new,
    )
    line.reaching = "reaching pods"
    return line


class PodMachine(EngineMachine):
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
        self.given: EngineAllocation = job
        # From outside, the addresses of pods are another network's.
        self.is_near: bool = "KUBERNETES_SERVICE_HOST" in os.environ and not job.record.context
        self.variables: Mapping[str, str] = {"SKYWARD_NOTICES": f"signal:{job.record.notice}:pod"}

    async def why_ended(self) -> str:
        """Why its pod has ended, as Kubernetes says; "" if it has not, or Kubernetes does not answer."""
        return await self.job.why_ended(self.name)
