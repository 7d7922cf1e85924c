"""What Kubernetes says of a Job and its pods, as values: read from the JSON of `kubectl get`. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from skyward_nb.providers.kubernetes.manifest import CONTAINER
from skyward_nb.words.decoding import from_json

_INDEX = "batch.kubernetes.io/job-completion-index"


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""
    reason: str | None = ""
    message: str | None = ""


class _Waiting(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Terminated(msgspec.Struct, rename="camel"):
    exit_code: int = 0
    reason: str = ""
    message: str = ""


class _ContainerState(msgspec.Struct):
    waiting: _Waiting | None = None
    running: dict[str, str | None] | None = None
    terminated: _Terminated | None = None


class _Container(msgspec.Struct):
    name: str = ""
    state: _ContainerState = msgspec.field(default_factory=_ContainerState)


class _Status(msgspec.Struct, rename="camel"):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[_Condition] | None = None
    container_statuses: list[_Container] | None = None
    init_container_statuses: list[_Container] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    suspend: bool | None = False


class _Item(msgspec.Struct):
    kind: str
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _List(msgspec.Struct):
    items: list[_Item]


class _About(msgspec.Struct):
    name: str = ""


class _Event(msgspec.Struct, rename="camel"):
    involved_object: _About
    reason: str | None = ""
    message: str | None = ""
    last_timestamp: str | None = ""


class _Events(msgspec.Struct):
    items: list[_Event]


class _NodeSpec(msgspec.Struct):
    unschedulable: bool | None = False


class _NodeStatus(msgspec.Struct):
    allocatable: dict[str, str] = {}


class _Node(msgspec.Struct):
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


class _Nodes(msgspec.Struct):
    items: list[_Node]


@dataclass(frozen=True)
class PodState:
    """A pod of a Job.

    `waiting` is why its container does not run yet, `ended` how it ended (`OOMKilled`, `Error`), with its exit `code`;
    `unscheduled` are the scheduler's words for why it has no node, `disrupted` why Kubernetes ends it.
    """

    name: str
    phase: str = "Pending"
    node: str = ""
    index: int = 0
    is_running: bool = False
    is_deleted: bool = False
    waiting: str = ""
    waiting_message: str = ""
    ended: str = ""
    code: int = 0
    unscheduled: str = ""
    disrupted: str = ""
    reason: str = ""
    message: str = ""


@dataclass(frozen=True)
class JobView:
    """A Job and its pods, in the order of nodes; `failed` is why the Job failed."""

    exists: bool
    namespace: str = ""
    is_suspended: bool = False
    failed: str = ""
    failed_message: str = ""
    pods: tuple[PodState, ...] = ()


@dataclass(frozen=True)
class PodEvent:
    """An event of a Job or of a pod, by the name of `about`."""

    about: str
    reason: str
    message: str


@dataclass(frozen=True)
class NodeRoom:
    """What the nodes of a cluster have in all, which other pods may use now.

    `nodes` take pods; `with_gpus` are those with GPUs, of which none has more than `most_gpus`.
    """

    nodes: int
    with_gpus: int
    most_gpus: int


def read_view(out: bytes) -> JobView:
    """The Job and the pods in an answer of `kubectl get jobs,pods -o json`; raises `msgspec.MsgspecError`."""
    items = from_json(out, _List).items
    job = next((each for each in items if each.kind == "Job"), None)
    pods = sorted((_pod(each) for each in items if each.kind == "Pod"), key=_order)
    if job is None:
        return JobView(exists=False, pods=tuple(pods))
    failed = next(
        (
            each
            for each in job.status.conditions or ()
            if each.type in ("Failed", "FailureTarget") and each.status == "True"
        ),
        None,
    )
    return JobView(
        exists=True,
        namespace=job.metadata.namespace,
        is_suspended=bool(job.spec.suspend),
        failed=(failed.reason or "Failed") if failed else "",
        failed_message=(failed.message or "") if failed else "",
        pods=tuple(pods),
    )


def read_events(out: bytes) -> list[PodEvent]:
    """The events in an answer of `kubectl get events -o json`, the newest last."""
    items = from_json(out, _Events).items
    items.sort(key=lambda each: each.last_timestamp or "")
    return [
        PodEvent(each.involved_object.name, each.reason or "", each.message or "") for each in items
    ]


def read_room(out: bytes, gpu_key: str) -> NodeRoom:
    """What nodes have, from an answer of `kubectl get nodes -o json`."""
    items = from_json(out, _Nodes).items
    counts = [
        int(text) if (text := each.status.allocatable.get(gpu_key, "0")).isdecimal() else 0
        for each in items
        if not each.spec.unschedulable
    ]
    return NodeRoom(len(counts), sum(count > 0 for count in counts), max(counts, default=0))


def _order(pod: PodState) -> tuple[int, bool, str]:
    return pod.index, pod.is_deleted, pod.name


def _pod(item: _Item) -> PodState:
    status = item.status
    conditions = {each.type: each for each in status.conditions or ()}
    scheduled = conditions.get("PodScheduled")
    disrupted = conditions.get("DisruptionTarget")
    states = [*(status.init_container_statuses or ()), *(status.container_statuses or ())]
    main = next((each for each in states if each.name == CONTAINER), _Container())
    # An init container, or one that was added, may be what does not start.
    waiting = next(
        (w for each in states if (w := each.state.waiting) and w.reason not in _NORMAL),
        main.state.waiting,
    )
    ended = main.state.terminated or _Terminated()
    index = (item.metadata.annotations or {}).get(_INDEX, "0")
    return PodState(
        name=item.metadata.name,
        phase=status.phase or "Pending",
        node=item.spec.node_name,
        index=int(index) if index.isdecimal() else 0,
        is_running=main.state.running is not None,
        is_deleted=item.metadata.deletion_timestamp is not None,
        waiting=waiting.reason if waiting else "",
        waiting_message=waiting.message if waiting else "",
        ended=ended.reason,
        code=ended.exit_code,
        unscheduled=(scheduled.message or "") if scheduled and scheduled.status == "False" else "",
        disrupted=(disrupted.reason or "") if disrupted and disrupted.status == "True" else "",
        reason=status.reason,
        message=status.message,
    )


_NORMAL = ("", "ContainerCreating", "PodInitializing")
