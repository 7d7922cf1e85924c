"""Records of SkyPilot's clusters on disk, and the files beside them."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from skyward_nb.providers.far.engine_record import EngineRecord
from skyward_nb.providers.skypilot.cluster_request import cluster_name, host_names, task
from skyward_nb.words.provider_access import SkyPilotAccess

_THEIR_CONFIG = "~/.sky/generated/ssh"


class ClusterRecord(EngineRecord, frozen=True, kw_only=True):
    """The cluster of a pool of so many nodes; `is_up` once its machines were reached.

    `dollars` an hour are those of all machines since `began`, None where SkyPilot named no price.
    """

    engine: ClassVar[str] = "skypilot"
    title: ClassVar[str] = "SkyPilot"
    beside: ClassVar[tuple[str, ...]] = ("yaml", "config")
    access: SkyPilotAccess
    nodes: int
    is_up: bool = False
    began: float = 0.0
    dollars: float | None = None

    @property
    def is_answered(self) -> bool:
        """See `EngineRecord.is_answered`."""
        return self.is_up

    @property
    def cluster(self) -> str:
        """The cluster's name."""
        return cluster_name(self.pool_id)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of its machines, the head first."""
        return host_names(self.cluster, self.nodes)

    def task_file(self) -> Path:
        """Write the file of its task."""
        return self.write_beside("yaml", task(self.pool_id))

    def ssh_config(self) -> Path:
        """Write the SSH config of its machines: SkyPilot's own, and a name by which host keys are pinned.

        SkyPilot's config checks no host keys, and knows them by addresses, which clouds give to others later.
        """
        lines = [f"Host {host}\n  HostKeyAlias {host}\n" for host in self.hosts]
        theirs = Path(_THEIR_CONFIG).expanduser() / self.cluster
        text = f'{"".join(lines)}Host *\nInclude "{theirs}"\n'
        return self.write_beside("config", text.encode())
