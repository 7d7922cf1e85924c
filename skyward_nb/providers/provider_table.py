"""The table of providers, by name."""

from __future__ import annotations

from skyward_nb.providers.aws.provider import AWSProvider
from skyward_nb.providers.base import Provider
from skyward_nb.providers.fake import FakeProvider
from skyward_nb.providers.local import LocalProvider
from skyward_nb.providers.ray.provider import RayProvider
from skyward_nb.providers.skypilot.provider import SkyPilotProvider
from skyward_nb.providers.slurm.provider import SlurmProvider
from skyward_nb.providers.ssh.provider import SSHProvider

PROVIDERS: dict[str, type[Provider]] = {
    "local": LocalProvider,
    "ssh": SSHProvider,
    "slurm": SlurmProvider,
    "ray": RayProvider,
    "sky": SkyPilotProvider,
    "aws": AWSProvider,
    "fake": FakeProvider,
}
"""`fake` is for tests alone: no option names it."""
