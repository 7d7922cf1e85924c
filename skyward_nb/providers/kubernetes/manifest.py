"""What is created for a pool: the manifest of its Job. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from skyward_nb.bootstrap.requirements import minor
from skyward_nb.providers.far.keeper import KEEPER, PATIENCE
from skyward_nb.providers.kubernetes.gpu_labels import TOLERATIONS, terms
from skyward_nb.words.decoding import from_json
from skyward_nb.words.errors import OptionError
from skyward_nb.words.offers import Need
from skyward_nb.words.provider_access import KubernetesAccess
from skyward_nb.words.spec import PoolSpec

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

CONTAINER = "main"
KEEP = "/tmp/.skyward-keeper"  # noqa: S108 - a volume of the pod's own
CACHE = "/tmp/.skyward-cache"  # noqa: S108
LABEL = "skyward-nb/pool"
"""The label of a pool's Job and pods: the name of the Job."""
POOL_ID = "skyward-nb/pool-id"
QUEUE = "kueue.x-k8s.io/queue-name"

GRACE = 30
"""Seconds from the notice that a pod ends until it is killed; Kubernetes' own default."""
_LAST = 10
"""Seconds of them that are left for the end of the agent."""
_AFTER = 60
"""Seconds after `ttl` at which Kubernetes ends a pod whose agent has not; and seconds for which an ended Job stays."""
_INDEXED = (1, 22)
_LONGEST = 48


@dataclass(frozen=True)
class ServerVersion:
    """The version of a cluster: its numbers, and its own text, in which clouds name themselves."""

    numbers: tuple[int, int] = (1, 30)
    text: str = ""

    @property
    def on_gke(self) -> bool:
        """Whether it is Google's."""
        return "-gke." in self.text


def job_name(pool_id: str) -> str:
    """The name of a pool's Job, which Kubernetes takes, whatever the pool's name: its last digits are the id's."""
    plain = re.sub(r"[^a-z0-9]+", "-", pool_id.lower()).strip("-")
    return f"skyward-{plain[-_LONGEST:].strip('-')}"


def notice_of(access: KubernetesAccess) -> int:
    """Seconds for which functions of `sky.on_preempt` may run before a pod ends."""
    spec = _overridden(access).get("spec")
    asked = spec.get("terminationGracePeriodSeconds") if isinstance(spec, dict) else None
    return max(1, (asked if isinstance(asked, int) else GRACE) - _LAST)


def manifest(spec: PoolSpec, pool_id: str, server: ServerVersion) -> str:
    """The manifest of a pool's Job as JSON; raises `OptionError` for overrides that no pool can have."""
    access = spec.kubernetes or KubernetesAccess()
    name = job_name(pool_id)
    labels: dict[str, Json] = {"app.kubernetes.io/managed-by": "skyward-nb", LABEL: name}
    pod = laid_over(
        {"metadata": {"labels": {**labels}}, "spec": _pod(spec, access, name, server)},
        _overridden(access),
    )
    queue: dict[str, Json] = {QUEUE: access.queue} if access.queue else {}
    indexed: dict[str, Json] = {"completionMode": "Indexed"} if server.numbers >= _INDEXED else {}
    job: dict[str, Json] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "labels": {**labels, **queue},
            "annotations": {POOL_ID: pool_id},
        },
        "spec": {
            "completions": spec.nodes,
            "parallelism": spec.nodes,
            **indexed,
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": _AFTER,
            "template": pod,
        },
    }
    return msgspec.json.encode(job).decode()


def _pod(
    spec: PoolSpec, access: KubernetesAccess, name: str, server: ServerVersion
) -> dict[str, Json]:
    gpu = spec.real_accelerator
    found: tuple[object, ...] = terms(gpu.name, on_gke=server.on_gke) if gpu else ()
    nodes: dict[str, Json] = {}
    if found:
        nodes["nodeAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": _plain(found)}
        }
    parts: dict[str, Json] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "affinity": {
            **nodes,
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "labelSelector": {"matchLabels": {LABEL: name}},
                        "topologyKey": "kubernetes.io/hostname",
                    }
                ]
            },
        },
        "containers": [_container(spec, access)],
        "volumes": [
            {"name": "scratch", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
    }
    if gpu:
        parts["tolerations"] = _plain(TOLERATIONS)
    if access.service_account:
        parts["serviceAccountName"] = access.service_account
    if spec.ttl:
        parts["activeDeadlineSeconds"] = math.ceil(spec.ttl) + _AFTER
    return parts


def _container(spec: PoolSpec, access: KubernetesAccess) -> dict[str, Json]:
    """The container whose process 1 is the keeper; it may do nothing that others on its node may not."""
    rights: dict[str, Json] = {"allowPrivilegeEscalation": False}
    if not spec.image.apt:  # Debian's packages belong to several users
        rights["capabilities"] = {"drop": ["ALL"]}
    keeper = f"set -- {KEEP} {PATIENCE}\n{KEEPER}"
    return {
        "name": CONTAINER,
        "image": access.image or f"python:{minor()}-slim",
        "command": ["/bin/sh", "-c", keeper],
        "env": [{"name": "SKYWARD_CACHE_DIR", "value": CACHE}],
        "resources": _resources(spec, access),
        "securityContext": rights,
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", _notice(access)]}}},
        "volumeMounts": [
            {"name": "scratch", "mountPath": "/tmp"},  # noqa: S108
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
        ],
    }


def _notice(access: KubernetesAccess) -> str:
    """Tells the agent that its pod ends, and gives it the time to say so; a keeper without an agent ends at once."""
    return (
        f"[ -e {KEEP}/begun ] || exit 0; kill -USR2 1; n=0; "
        f"while [ -e {KEEP}/begun ] && [ $n -lt {notice_of(access)} ]; do sleep 1; n=$((n + 1)); done"
    )


def _resources(spec: PoolSpec, access: KubernetesAccess) -> dict[str, Json]:
    """What is asked for is a limit, too; what is asked for `+` is a request alone."""
    requests: dict[str, Json] = {}
    limits: dict[str, Json] = {}

    def ask(name: str, need: Need | None, text: str) -> None:
        if need is not None:
            requests[name] = text
            if not need.more:
                limits[name] = text

    ask("cpu", spec.cpus, f"{spec.cpus.amount:g}" if spec.cpus else "")
    ask("memory", spec.memory, f"{math.ceil(spec.memory.amount * 1024)}Mi" if spec.memory else "")
    if gpu := spec.real_accelerator:
        requests[access.gpu_key] = limits[access.gpu_key] = str(gpu.count)
    return {key: value for key, value in (("requests", requests), ("limits", limits)) if value}


# ── what is laid over it ────────────────────────────────────────────────────────────────


def _overridden(access: KubernetesAccess) -> dict[str, Json]:
    if not access.pod_overrides:
        return {}
    return cast("dict[str, Json]", from_json(access.pod_overrides, Any))


def check_overrides(access: KubernetesAccess) -> None:
    """Raise `OptionError` for overrides with which a pod would have no keeper."""
    spec = _overridden(access).get("spec")
    if not isinstance(spec, dict):
        return
    if "restartPolicy" in spec:
        raise OptionError(
            "pod_overrides",
            "pod_overrides=: restartPolicy is Never; a rank's memory is not restarted",
        )
    containers = spec.get("containers")
    for each in containers if isinstance(containers, list) else ():
        if isinstance(each, dict) and each.get("name") == CONTAINER:
            for part in ("command", "args", "lifecycle"):
                if part in each:
                    raise OptionError(
                        "pod_overrides",
                        f"pod_overrides=: {part} of the container {CONTAINER} starts and ends the ranks",
                    )


def laid_over(base: Json, over: Json) -> Json:
    """`base` with the parts of `over`: maps are merged, None removes, lists are lengthened, named items merged."""
    if isinstance(base, dict) and isinstance(over, dict):
        merged = {**base}
        for key, value in over.items():
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = laid_over(base[key], value) if key in base else value
        return merged
    if isinstance(base, list) and isinstance(over, list):
        items = [*base]
        for item in over:
            same = [at for at, each in enumerate(items) if _mark(each) == _mark(item) is not None]
            if same:
                items[same[0]] = laid_over(items[same[0]], item)
            elif item not in items:
                items.append(item)
        return items
    return over


def _mark(item: Json) -> Json:
    """What an item of a list is known by: its name, for a mount its path."""
    return item.get("mountPath", item.get("name")) if isinstance(item, dict) else None


def _plain(items: tuple[object, ...]) -> Json:
    return cast("Json", from_json(msgspec.json.encode(items), Any))


# ── shown ───────────────────────────────────────────────────────────────────────────────


def dry_run_lines(spec: PoolSpec) -> Iterator[str]:
    """The command and the manifest that a pool would be created with; the keeper's own text is left out."""
    access = spec.kubernetes or KubernetesAccess()
    words = [
        f"--{key}={value}" for key in ("context", "namespace") if (value := getattr(access, key))
    ]
    yield "what would be created (by a server older than 1.22 as a plain Job; on GKE with its label alone):"
    yield f"    kubectl {' '.join([*words, 'create -f -'])}"
    text = manifest(spec, f"{spec.name}-ID", ServerVersion())
    shown = msgspec.json.format(text.replace(_quoted(KEEPER), "..."), indent=2)
    for line in shown.splitlines():
        yield f"    {line}"


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()[1:-1]
