"""The Job of a pool: created, waited for, watched and deleted."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from msgspec.structs import replace

from skyward_nb.bootstrap.remote_shell import ShellGone
from skyward_nb.protocol.events import Phase
from skyward_nb.providers.far.exec_line import ExecLine
from skyward_nb.providers.far.shared_answer import SharedAnswer
from skyward_nb.providers.far.take_down import EngineFault, taken_down
from skyward_nb.providers.kubernetes.cluster import (
    ClusterRefused,
    ClusterSilent,
    KubernetesCluster,
    kubeconfig,
    unreached,
)
from skyward_nb.providers.kubernetes.manifest import job_name, manifest, notice_of
from skyward_nb.providers.kubernetes.pod_records import PodRecord
from skyward_nb.providers.kubernetes.pod_states import JobView, PodEvent, PodState
from skyward_nb.providers.kubernetes.pod_words import (
    is_coming,
    spell_end,
    spell_left,
    spell_waiting,
    why_never,
    why_no_room,
)
from skyward_nb.providers.provider_protocol import Tell
from skyward_nb.words.errors import NodesRefused, StartError
from skyward_nb.words.provider_access import KubernetesAccess
from skyward_nb.words.spec import PoolSpec

_FIRST_LOOK = 0.3
_LOOK = 2.0
_LATER = 60.0
_LATER_LOOK = 10.0
"""Seconds between looks, at first, and after a minute."""
_EVENTS, _MOST_EVENTS = 4.0, 3
"""Seconds between two questions for events, and most pods about which they are asked for."""
NO_ROOM = 60.0
"""Seconds for which an autoscaler may take to say that it adds a node where none has what is asked for."""
_TOUCH = 30.0
"""Seconds between two commands for a pod that runs while others do not: its keeper waits no longer than 90."""
_BY_ITSELF = 8.0
"""Seconds that pods whose agents were told to stop may take to end by themselves."""
_END_LIMIT = 60.0
_ASK_AGAIN = 2.0
_SILENT_LIMIT = 300.0

LineTo = Callable[[PodRecord, str], ExecLine]
"""Makes the line to a pod."""


class PoolJob:
    """The Job of one pool, which all of its machines share."""

    def __init__(
        self, record: PodRecord, cluster: KubernetesCluster, *, may_exist: bool = True
    ) -> None:
        self.record: PodRecord = record
        self.cluster: KubernetesCluster = cluster
        self._may_exist = may_exist
        self.was_told: bool = False
        """Whether an agent of it was reached, and thus told to stop."""
        self._ended = SharedAnswer(self._end)
        self._last_view = SharedAnswer(self._view, _ASK_AGAIN)
        self._words: dict[str, str] = {}

    # ── created ─────────────────────────────────────────────────────────────────────────

    async def begin(self, spec: PoolSpec, tell: Tell, line_to: LineTo) -> list[str]:
        """Create the Job and wait until its pods run; those, in the order of nodes. Raises `StartError`."""
        access = spec.kubernetes or KubernetesAccess()
        tell(Phase("asking Kubernetes for pods"))
        try:
            context = access.context or await self.cluster.current_context()
            self.cluster.context = context
            server = await self.cluster.server()
            text = manifest(spec, self.record.pool_id, server)
            self._note(
                replace(
                    self.record,
                    context=context,
                    namespace=access.namespace or "",
                    kubeconfig=kubeconfig(),
                    server=await self.cluster.address(),
                    notice=notice_of(access),
                )
            )
            self._may_exist = True
            creating = asyncio.ensure_future(self._created(text))
            try:
                # An interrupt waits for the answer: what was created can then be deleted.
                namespace = await asyncio.shield(creating)
            except asyncio.CancelledError:
                await asyncio.wait([creating])
                raise
        except ClusterRefused as refused:
            self._may_exist = False
            raise NodesRefused(spec.name, f"Kubernetes gives no pods: {refused}") from None
        except ClusterSilent as silent:
            raise NodesRefused(
                spec.name, f"Kubernetes cannot be asked for pods: {unreached(str(silent))}"
            ) from None
        self.cluster.namespace = namespace
        self._note(replace(self.record, namespace=namespace))
        view = await self._started(spec, tell, line_to)
        pods = [pod.name for pod in view.pods if pod.is_running and not pod.is_deleted][
            : spec.nodes
        ]
        self._note(replace(self.record, pods=tuple(pods)))
        where = ", ".join(f"{pod.name} on {pod.node}" for pod in view.pods[:4])
        tell(Phase(f"pods run: {where}{', ...' * (len(view.pods) > 4)}"))
        return pods

    async def _created(self, text: str) -> str:
        """Create the Job; its namespace. Raises `ClusterRefused`, `ClusterSilent`."""
        try:
            return await self.cluster.create(text)
        except ClusterSilent:
            self._note(replace(self.record, lost=time.time()))
            raise

    def _note(self, record: PodRecord) -> None:
        self.record = record
        record.write()

    async def _started(self, spec: PoolSpec, tell: Tell, line_to: LineTo) -> JobView:
        """Wait for the pods, and tell where they stand; raises `StartError` once they never run."""
        began = heard = touched = time.monotonic()
        pause, asked, events = _FIRST_LOOK, 0.0, list[PodEvent]()
        while True:
            now = time.monotonic()
            try:
                view = await self.cluster.look(self.record.pool_id)
                heard = now
            except ClusterSilent as silent:
                if now - heard > _SILENT_LIMIT:
                    raise NodesRefused(
                        spec.name, f"Kubernetes does not answer: {unreached(str(silent))}"
                    ) from None
                tell(Phase(f"Kubernetes does not answer now: {silent}"))
                await asyncio.sleep(_LOOK)
                continue
            except ClusterRefused as refused:
                raise StartError(
                    spec.name, f"Kubernetes does not show its pods: {refused}"
                ) from None
            if sum(pod.is_running and not pod.is_deleted for pod in view.pods) >= spec.nodes:
                return view
            if now - began > 1 and now - asked > _EVENTS:
                asked, events = now, await self._events(view)
            await self._check(spec, view, events, now - began)
            tell(Phase(spell_waiting(view, spec, events)))
            if now - touched > _TOUCH:
                touched = now
                await self.touch([pod.name for pod in view.pods if pod.is_running], line_to)
            await asyncio.sleep(pause)
            pause = _LATER_LOOK if now - began > _LATER else min(_LOOK, 1.5 * pause)

    async def _check(
        self, spec: PoolSpec, view: JobView, events: list[PodEvent], waited: float
    ) -> None:
        """Raise `StartError` if the pods will not all run."""
        if not view.exists:
            raise StartError(spec.name, f"its Job {job_name(self.record.pool_id)} was deleted")
        why = why_never(view, events, spec.nodes)
        if why and not events:
            why = why_never(view, await self._events(view), spec.nodes)
        if why:
            raise NodesRefused(spec.name, why)
        if (
            waited > NO_ROOM
            and any(pod.unscheduled for pod in view.pods)
            and not is_coming(view, events)
        ):
            gpu_key = (spec.kubernetes or KubernetesAccess()).gpu_key
            if why := why_no_room(await self.cluster.room(gpu_key), spec):
                raise NodesRefused(spec.name, f"the pods would never run: {why}")

    async def _events(self, view: JobView) -> list[PodEvent]:
        waiting = [pod.name for pod in view.pods if not pod.is_running]
        return await self.cluster.events([job_name(self.record.pool_id), *waiting[:_MOST_EVENTS]])

    async def touch(self, pods: list[str], line_to: LineTo) -> None:
        """Have keepers wait on: a command for each of these pods."""
        ran = await asyncio.gather(
            *(line_to(self.record, pod).run(":", limit=_TOUCH) for pod in pods),
            return_exceptions=True,
        )
        for each in ran:
            if isinstance(each, BaseException) and not isinstance(each, ShellGone | TimeoutError):
                raise each

    # ── watched ─────────────────────────────────────────────────────────────────────────

    async def why_ended(self, pod: str) -> str:
        """Why a pod has ended, as Kubernetes says; "" if it has not, or Kubernetes does not answer.

        Calls within some seconds get one answer.
        """
        if pod in self._words:
            return self._words[pod]
        view = await self._last_view.get()
        if view is None:
            return ""
        found = next((each for each in view.pods if each.name == pod), None)
        events = await self.cluster.events([pod]) if found is None else []
        if words := spell_end(found, events, pod):
            self._words[pod] = words
        return words

    async def _view(self) -> JobView | None:
        try:
            return await self.cluster.look(self.record.pool_id)
        except (ClusterSilent, ClusterRefused):
            return None

    # ── deleted ─────────────────────────────────────────────────────────────────────────

    async def give_back(self) -> str:
        """Delete the Job, once, and wait until its pods are gone; what of it may run on, in words."""
        return await self._ended.get()

    async def _end(self) -> str:
        if not self._may_exist:
            self.record.remove()
            return ""
        if self.was_told:
            with contextlib.suppress(EngineFault):
                await self._gone(_BY_ITSELF, lambda pod: pod.phase in ("Succeeded", "Failed"))
        name = f"Job {job_name(self.record.pool_id)}"
        return await taken_down(
            self.record, name, self._deleted, "Its pods end by themselves when their agents do. "
        )

    async def _deleted(self) -> str:
        await self.cluster.delete(self.record.pool_id)
        return spell_left(await self._gone(self.record.notice + _END_LIMIT, lambda _: False))

    async def end_orphan(self) -> bool:
        """Delete the Job of a pool that is gone, if it is there; raises `EngineFault`."""
        known, now = self.record.server, await self.cluster.address()
        if known and now != known:
            raise ClusterRefused(f"it is at {known}, and its context here leads to {now or 'none'}")
        view = await self.cluster.look(self.record.pool_id)
        await self.cluster.delete(self.record.pool_id)
        return view.exists or bool(view.pods)

    async def _gone(
        self, limit: float, is_gone: Callable[[PodState], bool]
    ) -> tuple[PodState, ...]:
        """Wait until the pods have gone; those that have not after `limit` seconds. Raises what `look` raises."""
        until, pause = time.monotonic() + limit, _FIRST_LOOK
        while True:
            view = await self.cluster.look(self.record.pool_id)
            left = tuple(pod for pod in view.pods if not is_gone(pod))
            if not left or time.monotonic() > until:
                return left
            await asyncio.sleep(pause)
            pause = min(_LOOK, 1.2 * pause)
