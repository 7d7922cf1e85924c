"""The provider of pods of a Kubernetes cluster."""

from __future__ import annotations

from skyward_nb.providers.far.far_provider import FarProvider
from skyward_nb.providers.provider_protocol import Machine, Tell
from skyward_nb.words.errors import OptionError
from skyward_nb.words.spec import PoolSpec


class KubernetesProvider(FarProvider):
    """Has Kubernetes run one Job for a pool, whose pods are its nodes."""

    name = "kubernetes"

    def check(self, spec: PoolSpec) -> None:
        """Raise `OptionError` for what no pod can have."""
        from skyward_nb.providers.kubernetes.manifest import check_overrides
        from skyward_nb.words.catalogue import kind_of

        super().check(spec)
        if spec.kubernetes is not None:
            check_overrides(spec.kubernetes)
        gpu = spec.real_accelerator
        kind = kind_of(gpu.name) if gpu else None
        if kind is not None and kind.maker != "NVIDIA":
            raise OptionError(
                "accelerator",
                f"accelerator={gpu}: ranks in pods find accelerators of NVIDIA alone",
            )
        if gpu is not None and spec.mig:
            raise OptionError(
                "mig",
                f"mig={spec.mig}: a pod cannot cut its node's GPUs. Where the cluster has such slices, count them: "
                f'sky.Kubernetes(gpu_key="nvidia.com/mig-{spec.mig}"), and leave out mig=',
            )

    async def acquire(self, spec: PoolSpec, pool_id: str, tell: Tell) -> tuple[Machine, ...]:
        """Create a Job, wait for its pods and make them ready, all or none; raises a `SkyError`, with none left."""
        from skyward_nb.providers.kubernetes.pool_pods import acquire

        return await acquire(spec, pool_id, tell)

    def find(self, spec: PoolSpec, pool_id: str) -> tuple[Machine, ...]:
        """The machines of an existing pool; raises `AgentGone` if it has no Job any more."""
        from skyward_nb.providers.kubernetes.pool_pods import find

        return find(spec, pool_id)
