"""Records of placement groups on disk, each written before its group is asked for.

A record that stays where its pool is not listed says which group may be left: the next pool removes it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from skyward_nb.providers.maker_process import MakerProcess
from skyward_nb.providers.state_files import state_folder, write
from skyward_nb.words.ray_access import RayAccess

_PROVIDER = "ray"


class GroupRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The group of a pool of so many nodes; `nodes` are their names, empty until its actors run."""

    pool_id: str
    access: RayAccess
    maker: MakerProcess
    listing: str
    """The file that lists the pool while it is up, of whichever runtime folder."""
    count: int
    nodes: tuple[str, ...] = ()

    @property
    def is_orphan(self) -> bool:
        """Whether nobody can find its pool: no process makes it, and it is not listed."""
        return not self.maker.may_live and not Path(self.listing).exists()

    def write(self) -> None:
        """Write it, whole or not at all; raises OSError."""
        path = _path(self.pool_id)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write(path, msgspec.json.encode(self))

    def remove(self) -> None:
        """Remove it: nothing of its group is left."""
        _path(self.pool_id).unlink(missing_ok=True)


def find_record(pool_id: str) -> GroupRecord | None:
    """The record of a pool, if there is one."""
    with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
        return msgspec.json.decode(_path(pool_id).read_bytes(), type=GroupRecord)
    return None


def all_records() -> list[GroupRecord]:
    """The records of all pools of this user."""
    found = (find_record(path.stem) for path in state_folder(_PROVIDER).glob("*.json"))
    return [record for record in found if record is not None]


def _path(pool_id: str) -> Path:
    return state_folder(_PROVIDER) / f"{pool_id}.json"
