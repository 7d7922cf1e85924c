"""The table of providers, by name."""

from __future__ import annotations

from skyward_nb.providers.aws.aws_provider import AWSProvider
from skyward_nb.providers.fake import FakeProvider
from skyward_nb.providers.kubernetes.kubernetes_provider import KubernetesProvider
from skyward_nb.providers.local import LocalProvider
from skyward_nb.providers.provider_protocol import Provider
from skyward_nb.providers.ray.ray_provider import RayProvider
from skyward_nb.providers.skypilot.skypilot_provider import SkyPilotProvider
from skyward_nb.providers.slurm.slurm_provider import SlurmProvider
from skyward_nb.providers.ssh.ssh_provider import SSHProvider

PROVIDERS: dict[str, type[Provider]] = {
    "local": LocalProvider,
    "ssh": SSHProvider,
    "slurm": SlurmProvider,
    "kubernetes": KubernetesProvider,
    "ray": RayProvider,
    "sky": SkyPilotProvider,
    "aws": AWSProvider,
    "fake": FakeProvider,
}
"""`fake` is for tests alone: no option names it."""
