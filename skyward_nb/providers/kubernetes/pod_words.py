"""What the states of pods mean, in words: why they wait, why they never start, how they ended. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from skyward_nb.providers.kubernetes.pod_states import JobView, NodeRoom, PodEvent, PodState
from skyward_nb.words.provider_access import KubernetesAccess
from skyward_nb.words.spec import PoolSpec

# ── why it waits ────────────────────────────────────────────────────────────────────────

_IMAGE = "name another with image=, or give the pods a secret for it: pod_overrides={'spec': {'imagePullSecrets': [...]}}"
_NEVER_RUNS: dict[str, str] = {
    "ErrImagePull": f"its image cannot be pulled: {_IMAGE}",
    "ImagePullBackOff": f"its image cannot be pulled: {_IMAGE}",
    "ErrImageNeverPull": "its image is not on the node, and may not be pulled (imagePullPolicy: Never): name another with image=",
    "InvalidImageName": "its image has no name that is one: see image=",
    "ImageInspectError": "its image is broken on the node: name another with image=",
    "RegistryUnavailable": "the registry of its image does not answer: name another with image=",
    "CreateContainerConfigError": "a part of its configuration is not there: see pod_overrides=",
    "CreateContainerError": "its container could not be made: see pod_overrides=, and image=, which needs /bin/sh",
    "RunContainerError": "its container could not be started: image= needs /bin/sh",
}
"""Reasons of waiting containers that do not pass by themselves."""

_CAUSES: tuple[tuple[str, str], ...] = (
    (r"Insufficient (\S*gpu\S*\w|\S+/\S*\w)", "no node has enough free GPUs ({0})"),
    (r"Insufficient cpu", "no node has enough free CPUs"),
    (r"Insufficient memory", "no node has enough free memory"),
    (r"Insufficient ephemeral-storage", "no node has enough free disk"),
    (r"anti-affinity", "each node of a pool needs a node of its own"),
    (
        r"node affinity|node selector|node\(s\) didn't match Pod's",
        "no node has the labels of that accelerator",
    ),
    (
        r"taint",
        "nodes are kept for other pods (taints), which pod_overrides={{'spec': {{'tolerations': [...]}}}} may share",
    ),
    (r"persistentvolumeclaim|volume", "a volume is not there"),
    (r"Too many pods", "nodes have as many pods as they may"),
)
"""Forms of the scheduler's words, and what they mean."""

_GROWS = (
    "TriggeredScaleUp",
    "Nominated",
    "ScaleUp",
    "NodeClaimCreated",
    "ProvisioningRequestAccepted",
)
"""Reasons of events with which autoscalers of nodes say that one is coming (cluster-autoscaler, Karpenter, GKE's)."""


def spell_waiting(view: JobView, spec: PoolSpec, events: Sequence[PodEvent] = ()) -> str:
    """Where the pods of a pool stand, in words."""
    running = sum(pod.is_running for pod in view.pods)
    text = f"{running} of {spec.nodes} pods run"
    if view.is_suspended:
        queue = spec.kubernetes.queue if spec.kubernetes else None
        said = _newest(events, ("Pending", "Inadmissible", "CreatedWorkload", "Suspended"))
        where = f"the queue {queue} of Kueue" if queue else "a queue: its Job is suspended"
        return f"the pool waits in {where}{f' ({said})' if said else ''}"
    if len(view.pods) < spec.nodes:
        said = _newest(events, ("FailedCreate",))
        return f"{text}; Kubernetes makes the others{f', and could not yet: {_short(said)}' if said else ''}"
    parts = dict.fromkeys(_waits(pod, events) for pod in view.pods if not pod.is_running)
    return "; ".join([text, *(part for part in parts if part)])


def _waits(pod: PodState, events: Sequence[PodEvent]) -> str:
    if pod.unscheduled:
        coming = _newest(_of(pod, events), _GROWS)
        grown = ": an autoscaler adds a node" if coming else ""
        return f"{spell_unscheduled(pod.unscheduled)} ({_short(pod.unscheduled)}){grown}"
    if not pod.node:
        return "Kubernetes looks for a node"
    if pod.waiting in ("", "ContainerCreating", "PodInitializing"):
        newest = next(
            (each.reason for each in reversed(_of(pod, events)) if each.reason in _STEPS), ""
        )
        return _STEPS.get(newest, "their containers are made")
    return pod.waiting


_STEPS = {
    "Pulling": "their image is pulled",
    "Pulled": "their image is there",
    "FailedMount": "their volumes cannot be mounted yet",
    "FailedAttachVolume": "their volumes cannot be attached yet",
    "FailedCreatePodSandBox": "their network cannot be made yet",
}


def spell_unscheduled(message: str) -> str:
    """Why a pod has no node, of the scheduler's words."""
    found: list[str] = []
    for form, words in _CAUSES:
        match = re.search(form, message)
        if match is not None:
            found.append(words.format(*match.groups()))
    return ", ".join(dict.fromkeys(found)) or "Kubernetes finds no node"


def is_coming(view: JobView, events: Sequence[PodEvent]) -> bool:
    """Whether an autoscaler has said that it adds a node for one of these pods."""
    return any(_newest(_of(pod, events), _GROWS) for pod in view.pods)


# ── why it never starts ─────────────────────────────────────────────────────────────────


def why_never(view: JobView, events: Sequence[PodEvent], nodes: int) -> str:
    """Why the pods of a Job will not all run, and what to change; "" if they may."""
    for pod in view.pods:
        if (words := _NEVER_RUNS.get(pod.waiting)) is not None:
            said = _pull_words(pod, events) or pod.waiting_message
            return f"pod {pod.name}: {words} ({pod.waiting}{f': {_short(said)}' if said else ''})"
        if (words := spell_end(pod)) and not pod.is_running:
            return words
    if view.failed and not view.pods:
        return f"its Job failed: {view.failed_message or view.failed}"
    refused = _newest(events, ("FailedCreate",))
    return refused_words(refused) if len(view.pods) < nodes else ""


def why_no_room(room: NodeRoom | None, spec: PoolSpec) -> str:
    """What no node of a cluster has, of what a pool asks for; "" if nodes have it, or what they have is not known."""
    if room is None:
        return ""
    gpu = spec.real_accelerator
    key = (spec.kubernetes or KubernetesAccess()).gpu_key
    advice = "an autoscaler of nodes has not said that it adds one"
    if gpu is not None and not room.with_gpus:
        return (
            f"accelerator={gpu} was asked for, and no node of this cluster has GPUs ({key}); {advice}. Leave out "
            "accelerator=, or see `kubectl get nodes -o custom-columns=NAME:.metadata.name,GPUS:.status.allocatable`"
        )
    if gpu is not None and gpu.count > room.most_gpus:
        return f"accelerator={gpu}: no node has more than {room.most_gpus} ({key}); {advice}"
    fitting = room.nodes if gpu is None else room.with_gpus
    if spec.nodes > fitting:
        kind = "" if gpu is None else " with GPUs"
        return f"nodes={spec.nodes}, and the cluster has {fitting}{kind}, of which each takes one pod of a pool; {advice}"
    return ""


_QUOTA = re.compile(r"exceeded quota: (\S+), requested: (.*), used: (.*), limited: (.*)")


def refused_words(said: str) -> str:
    """Kubernetes' words for why it makes no pod of a Job, and what to type next; "" for others, which may pass."""
    if match := _QUOTA.search(said):
        return (
            f"the quota {match[1]} of the namespace gives no more: {match[2]} was asked for, {match[3]} is used, of "
            f"{match[4]}. Ask for less (nodes=, cpus=, memory=, accelerator=), or end other pods"
        )
    if "must specify" in said:
        return f"the namespace's quota requires requests: add cpus= and memory= ({_short(said)})"
    if "violates PodSecurity" in said:
        return (
            "the namespace refuses such pods (PodSecurity): run them as a user that is not root, "
            "pod_overrides={'spec': {'securityContext': {'runAsNonRoot': True, 'runAsUser': 1000}}} "
            f"({_short(said)})"
        )
    if "serviceaccount" in said:
        return f"there is no such service account: service_account= ({_short(said)})"
    return ""


# ── how it ended ────────────────────────────────────────────────────────────────────────

_DISRUPTED = {
    "PreemptionByScheduler": "a pod with a higher priority took its place",
    "DeletionByTaintManager": "its node does not answer, or is kept for other pods now",
    "EvictionByEvictionAPI": "it was evicted: its node is drained",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "its node was short of something, or is shut down",
}
_REASONS = {
    "DeadlineExceeded": "its deadline was reached: ask for more with ttl=",
    "Evicted": "its node was short of something, and evicted it",
    "NodeLost": "its node does not answer",
    "Shutdown": "its node was shut down",
    "NodeShutdown": "its node was shut down",
    "Terminated": "its node was shut down",
    "Preempting": "a pod that the node needs took its place",
    "UnexpectedAdmissionError": "its node could not give it its devices",
    "OutOfcpu": "its node had no CPUs left",
    "OutOfmemory": "its node had no memory left",
}
_EVENTS = {
    "Preempted": "a pod with a higher priority took its place",
    "TaintManagerEviction": "its node does not answer, or is kept for other pods now",
    "Evicted": "its node was short of something, and evicted it",
    "NodeNotReady": "its node does not answer",
    "ExceededGracePeriod": "its deadline was reached: ask for more with ttl=",
    "DeadlineExceeded": "its deadline was reached: ask for more with ttl=",
    "Killing": "it was deleted",
}
_OOM = "OOMKilled"
_CODES = {
    137: "it was killed from outside (status 137)",
    143: "it was told to end from outside (status 143)",
}
"""Exit statuses of a keeper that was ended by SIGKILL and SIGTERM."""


def spell_end(pod: PodState | None, events: Iterable[PodEvent] = (), name: str = "") -> str:
    """How a pod ended, or is about to, in words; "" if it has not. None: Kubernetes does not know it any more."""
    if pod is None:
        known = [each for each in events if each.about == name and each.reason in _EVENTS]
        return f"pod {name}: {_EVENTS[known[-1].reason] if known else 'it was deleted'}"
    if pod.ended == _OOM:
        return (
            f"pod {pod.name}: it used more memory than it had ({_OOM}): ask for more with memory="
        )
    why = _DISRUPTED.get(pod.disrupted, "") or _REASONS.get(pod.reason, "")
    if why:
        said = f" ({_short(pod.message)})" if pod.message else ""
        return f"pod {pod.name}: {why}{said}"
    if pod.is_deleted:
        return f"pod {pod.name}: it was deleted"
    if pod.phase == "Failed" or pod.ended:
        reason = pod.reason or pod.ended
        said = f" ({reason})" if reason not in ("", "Error", "Completed") else ""
        how = _CODES.get(pod.code, f"it has ended with status {pod.code}")
        return f"pod {pod.name}: {how}{said}"
    return f"pod {pod.name}: it has ended" if pod.phase == "Succeeded" else ""


def spell_left(pods: Sequence[PodState]) -> str:
    """The pods that are still there after their Job was deleted, in words."""
    return ", ".join(f"pod {pod.name}{f' on node {pod.node}' * bool(pod.node)}" for pod in pods)


# ── parts ───────────────────────────────────────────────────────────────────────────────


def _of(pod: PodState, events: Iterable[PodEvent]) -> list[PodEvent]:
    return [each for each in events if each.about == pod.name]


def _newest(events: Iterable[PodEvent], reasons: Sequence[str]) -> str:
    """The words of the newest event with one of these reasons; "" if there is none."""
    found = [each.message or each.reason for each in events if each.reason in reasons]
    return found[-1] if found else ""


def _pull_words(pod: PodState, events: Iterable[PodEvent]) -> str:
    """What the registry said when an image was pulled; the pod itself may say only that it waits."""
    failed = [each.message for each in _of(pod, events) if each.reason == "Failed"]
    return next((text for text in reversed(failed) if text.startswith("Failed to pull")), "")


def _short(text: str) -> str:
    """The first 300 characters of some words, on one line, without their full stop."""
    line = " ".join(text.split())
    return f"{line[:300]}…" if len(line) > 300 else line.removesuffix(".")
