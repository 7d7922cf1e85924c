"""By which labels clouds and NVIDIA's operator name the GPUs of a node: a table, and terms of affinity made of it. Pure.

Sources, read in November 2026:
- GKE: https://cloud.google.com/kubernetes-engine/docs/how-to/gpus (`cloud.google.com/gke-accelerator`, its values, and
  the taint `nvidia.com/gpu=present:NoSchedule`)
- EKS: https://docs.aws.amazon.com/eks/latest/userguide/ml-workload-placement.html and
  https://karpenter.sh/docs/concepts/scheduling/ (`karpenter.k8s.aws/instance-gpu-name`, in Auto Mode
  `eks.amazonaws.com/instance-gpu-name`; node groups without Karpenter have the label of NVIDIA's operator alone)
- AKS: https://learn.microsoft.com/azure/aks/use-nvidia-gpu (no label has the model; the size of the machine,
  `node.kubernetes.io/instance-type`, decides; its taint in the guide is `sku=gpu:NoSchedule`)
- everywhere: https://github.com/NVIDIA/k8s-device-plugin/tree/main/docs/gpu-feature-discovery (`nvidia.com/gpu.product`,
  the name of the driver with `-` for spaces; drivers before 450 leave out `NVIDIA-`)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec

GKE = "cloud.google.com/gke-accelerator"
KARPENTER = "karpenter.k8s.aws/instance-gpu-name"
AUTO_MODE = "eks.amazonaws.com/instance-gpu-name"
PRODUCT = "nvidia.com/gpu.product"
MACHINE = "node.kubernetes.io/instance-type"


@dataclass(frozen=True)
class GpuLabels:
    """The values of the labels of nodes with one model of GPUs."""

    gke: tuple[str, ...] = ()
    eks: tuple[str, ...] = ()
    aks: tuple[str, ...] = ()
    products: tuple[str, ...] = ()


# fmt: off
GPU_LABELS: dict[str, GpuLabels] = {
    "T4": GpuLabels(("nvidia-tesla-t4",), ("t4",),
                 ("Standard_NC4as_T4_v3", "Standard_NC8as_T4_v3", "Standard_NC16as_T4_v3", "Standard_NC64as_T4_v3"),
                 ("Tesla-T4", "NVIDIA-T4")),
    "P100": GpuLabels(("nvidia-tesla-p100",), (), (), ("Tesla-P100-PCIE-16GB", "Tesla-P100-SXM2-16GB")),
    "V100": GpuLabels(("nvidia-tesla-v100",), ("v100",),
                   ("Standard_NC6s_v3", "Standard_NC12s_v3", "Standard_NC24s_v3", "Standard_NC24rs_v3",
                    "Standard_ND40rs_v2"),
                   ("Tesla-V100-SXM2-16GB", "Tesla-V100-SXM2-32GB", "Tesla-V100-SXM3-32GB", "Tesla-V100-PCIE-16GB",
                    "Tesla-V100-PCIE-32GB", "Tesla-V100S-PCIE-32GB")),
    "A10": GpuLabels((), (), ("Standard_NV36ads_A10_v5", "Standard_NV72ads_A10_v5"), ("NVIDIA-A10",)),
    "A10G": GpuLabels((), ("a10g",), (), ("NVIDIA-A10G",)),
    "A40": GpuLabels((), (), (), ("NVIDIA-A40",)),
    "A100-40GB": GpuLabels(("nvidia-tesla-a100",), (), ("Standard_ND96asr_v4",),
                        ("NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-PCIE-40GB", "A100-SXM4-40GB", "A100-PCIE-40GB")),
    "A100-80GB": GpuLabels(("nvidia-a100-80gb",), (),
                        ("Standard_NC24ads_A100_v4", "Standard_NC48ads_A100_v4", "Standard_NC96ads_A100_v4",
                         "Standard_ND96amsr_A100_v4"),
                        ("NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe", "A100-SXM4-80GB")),
    "L4": GpuLabels(("nvidia-l4",), ("l4",), (), ("NVIDIA-L4",)),
    "L40": GpuLabels((), (), (), ("NVIDIA-L40",)),
    "L40S": GpuLabels((), ("l40s",), (), ("NVIDIA-L40S",)),
    "H100": GpuLabels(("nvidia-h100-80gb", "nvidia-h100-mega-80gb"), ("h100",),
                   ("Standard_NC40ads_H100_v5", "Standard_NC80adis_H100_v5", "Standard_ND96isr_H100_v5"),
                   ("NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe", "NVIDIA-H100-NVL")),
    "H200": GpuLabels(("nvidia-h200-141gb",), ("h200",), ("Standard_ND96isr_H200_v5",),
                   ("NVIDIA-H200", "NVIDIA-H200-NVL")),
    "B200": GpuLabels(("nvidia-b200",), ("b200",), (), ("NVIDIA-B200",)),
    "RTX-PRO-6000": GpuLabels(("nvidia-rtx-pro-6000",), (), (),
                           ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",)),
}
# fmt: on
"""The labels of each model; of one with two sizes of memory, of each size. EKS names no size of an A100."""

_A100 = "a100"
"""The value of EKS for an A100 of either size."""

Operator = Literal["In", "NotIn", "DoesNotExist", "Exists"]


class Toleration(msgspec.Struct, frozen=True, omit_defaults=True):
    """A toleration of a pod, as Kubernetes spells it."""

    key: str
    operator: Literal["Exists", "Equal"] = "Equal"
    value: str = ""
    effect: str = ""


TOLERATIONS = (
    Toleration("nvidia.com/gpu", "Exists", "", "NoSchedule"),
    Toleration("sku", "Equal", "gpu", "NoSchedule"),
)
"""Of nodes with GPUs, which clouds and their guides keep free of other pods."""


class LabelRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """One requirement of a label of a node, as Kubernetes spells it."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


class LabelTerm(msgspec.Struct, frozen=True, rename="camel"):
    """Requirements that a node meets all of; of several terms it meets one."""

    match_expressions: tuple[LabelRule, ...]


def terms(name: str, *, on_gke: bool = False) -> tuple[LabelTerm, ...]:
    """The terms of a pod's node affinity for the accelerator called `name`; none if its labels are not known.

    A node without any of these labels fits, too: `nvidia-smi` in the pod then says what it has. On GKE the label is
    always there, and its autoscaler reads it.
    """
    known = _known(name)
    if not known:
        return ()
    gke = _all(each.gke for each in known)
    if on_gke:
        return (LabelTerm((LabelRule(GKE, "In", gke),)),) if gke else ()
    is_a100 = name.startswith("A100")
    eks = (_A100,) if is_a100 else _all(each.eks for each in known)
    aks = _all(each.aks for each in known)
    others = tuple(size for each in GPU_LABELS.values() for size in each.aks if size not in aks)
    found = [
        LabelTerm((LabelRule(label, "In", values),))
        for label, values in (
            (PRODUCT, _all(each.products for each in known)),
            (GKE, gke),
            (KARPENTER, eks),
            (AUTO_MODE, eks),
            (MACHINE, aks),
        )
        if values
    ]
    unlabelled = [LabelRule(key, "DoesNotExist") for key in (PRODUCT, GKE, KARPENTER, AUTO_MODE)]
    return (*found, LabelTerm((*unlabelled, LabelRule(MACHINE, "NotIn", others))))


def _known(name: str) -> list[GpuLabels]:
    """The rows of the table for a name: of `A100` both sizes, of `H100-80GB` its model's."""
    if name in GPU_LABELS:
        return [GPU_LABELS[name]]
    sizes = [labels for model, labels in GPU_LABELS.items() if model.startswith(f"{name}-")]
    sizes = sizes if name == "A100" else []
    whole = name.rpartition("-")[0] if name.endswith("GB") else ""
    return sizes or ([GPU_LABELS[whole]] if whole in GPU_LABELS else [])


def _all(parts: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(itertools.chain.from_iterable(parts))
