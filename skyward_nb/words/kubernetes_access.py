"""A pool's use of a Kubernetes cluster, as one value: `KubernetesAccess`. Pure."""

from __future__ import annotations

import msgspec

GPU_KEY = "nvidia.com/gpu"
"""The name by which Kubernetes counts NVIDIA's GPUs."""


class KubernetesAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How pods are asked of Kubernetes; what is None is left out, and kubectl's or the cluster's own default holds.

    `context` and `namespace` are kubectl's, `image` is the container image of the pods (None: one with this Python),
    `queue` a LocalQueue of Kueue, `gpu_key` the name by which GPUs are counted. `pod_overrides` is the text of a JSON
    object, which is laid over the pod's spec; "" for none.
    """

    context: str | None = None
    namespace: str | None = None
    image: str | None = None
    queue: str | None = None
    service_account: str | None = None
    gpu_key: str = GPU_KEY
    pod_overrides: str = ""


def is_container_image(text: str) -> bool:
    """Whether the text of `image=` is a container image, as `python:3.12`, `me/torch`; else it is a variable's name."""
    return any(mark in text for mark in ":/@")
