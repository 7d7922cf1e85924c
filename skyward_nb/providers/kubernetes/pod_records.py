"""Records of Jobs on disk, each written before its Job is created.

A record that stays where its pool is not listed says which Job may be left: the next pool deletes it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from skyward_nb.providers.folders import far_root
from skyward_nb.providers.maker_process import MakerProcess
from skyward_nb.providers.state_files import state_folder, write

_PROVIDER = "kubernetes"


class PodRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The Job of a pool: the `context` and `namespace` that it was created in, and its pods once they run.

    `context` is "" within a pod of the cluster. `notice` are the seconds from a pod's notice to its agent's end. With
    `is_left`, its end was not confirmed.
    """

    pool_id: str
    maker: MakerProcess
    context: str = ""
    namespace: str = ""
    notice: int = 20
    pods: tuple[str, ...] = ()
    is_left: bool = False

    def write(self) -> None:
        """Write it, whole or not at all; raises OSError."""
        path = _path(self.pool_id)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write(path, msgspec.json.encode(self))

    def remove(self) -> None:
        """Remove it: nothing of its Job is left."""
        _path(self.pool_id).unlink(missing_ok=True)

    @property
    def is_orphan(self) -> bool:
        """Whether nobody can find its pool: it was given up; or no process makes it, and it is not listed."""
        is_listed = (far_root() / f"{self.pool_id}.json").exists()
        return self.is_left or not (self.maker.may_live or is_listed)


def find_record(pool_id: str) -> PodRecord | None:
    """The record of a pool, if there is one."""
    with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
        return msgspec.json.decode(_path(pool_id).read_bytes(), type=PodRecord)
    return None


def all_records() -> list[PodRecord]:
    """The records of all pools of this user."""
    found = (find_record(path.stem) for path in state_folder(_PROVIDER).glob("*.json"))
    return [record for record in found if record is not None]


def _path(pool_id: str) -> Path:
    return state_folder(_PROVIDER) / f"{pool_id}.json"
