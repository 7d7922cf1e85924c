"""Records of SkyPilot's clusters on disk, each written before its cluster is asked for; and the files beside it.

A record that stays where its pool is not listed says which cluster may be left: the next pool takes it down.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from skyward_nb.providers.maker_process import MakerProcess
from skyward_nb.providers.skypilot.cluster_request import cluster_name, host_names, task
from skyward_nb.providers.state_files import state_folder, write
from skyward_nb.words.skypilot_access import SkyPilotAccess

_PROVIDER = "skypilot"
_THEIR_CONFIG = "~/.sky/generated/ssh"


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster of a pool of so many nodes; `is_up` once its machines were reached.

    `dollars` an hour are those of all machines since `began`, None where SkyPilot named no price.
    """

    pool_id: str
    access: SkyPilotAccess
    maker: MakerProcess
    listing: str
    """The file that lists the pool while it is up, of whichever runtime folder."""
    nodes: int
    is_up: bool = False
    began: float = 0.0
    dollars: float | None = None

    @property
    def cluster(self) -> str:
        """The cluster's name."""
        return cluster_name(self.pool_id)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of its machines, the head first."""
        return host_names(self.cluster, self.nodes)

    @property
    def is_orphan(self) -> bool:
        """Whether nobody can find its pool: no process makes it, and it is not listed."""
        return not self.maker.may_live and not Path(self.listing).exists()

    def write(self) -> None:
        """Write it, whole or not at all; raises OSError."""
        path = _path(self.pool_id, "json")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write(path, msgspec.json.encode(self))

    def remove(self) -> None:
        """Remove it and the files beside it: nothing of its cluster is left."""
        for suffix in ("yaml", "config", "json"):
            _path(self.pool_id, suffix).unlink(missing_ok=True)

    def task_file(self) -> Path:
        """Write the file of its task."""
        path = _path(self.pool_id, "yaml")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write(path, task(self.pool_id))
        return path

    def ssh_config(self) -> Path:
        """Write the SSH config of its machines: SkyPilot's own, and a name by which host keys are pinned.

        SkyPilot's config checks no host keys, and knows them by addresses, which clouds give to others later.
        """
        lines = [f"Host {host}\n  HostKeyAlias {host}\n" for host in self.hosts]
        theirs = Path(_THEIR_CONFIG).expanduser() / self.cluster
        path = _path(self.pool_id, "config")
        write(path, f'{"".join(lines)}Host *\nInclude "{theirs}"\n'.encode())
        return path


def find_record(pool_id: str) -> ClusterRecord | None:
    """The record of a pool, if there is one."""
    with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
        return msgspec.json.decode(_path(pool_id, "json").read_bytes(), type=ClusterRecord)
    return None


def all_records() -> list[ClusterRecord]:
    """The records of all pools of this user."""
    found = (find_record(path.stem) for path in state_folder(_PROVIDER).glob("*.json"))
    return [record for record in found if record is not None]


def _path(pool_id: str, suffix: str) -> Path:
    return state_folder(_PROVIDER) / f"{pool_id}.{suffix}"
