"""Records of jobs on disk, each written before its job is submitted.

A record that stays where its pool is not listed says which job may be left: the next pool cancels it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from skyward_nb.providers.maker_process import MakerProcess
from skyward_nb.providers.state_files import state_folder, write
from skyward_nb.words.slurm_access import SlurmAccess

_PROVIDER = "slurm"


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The job of a pool; `job` is "" until Slurm has told its id, `nodes` are empty until it runs.

    With `is_current`, the job was there before the pool, and is not the pool's to cancel.
    """

    pool_id: str
    access: SlurmAccess
    maker: MakerProcess
    job: str = ""
    nodes: tuple[str, ...] = ()
    is_current: bool = False
    listing: str = ""
    """The file that lists the pool while it is up, of whichever runtime folder; "" in records of earlier versions."""

    def write(self) -> None:
        """Write it, whole or not at all; raises OSError."""
        path = _path(self.pool_id)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write(path, msgspec.json.encode(self))

    def remove(self) -> None:
        """Remove it: nothing of its job is left."""
        _path(self.pool_id).unlink(missing_ok=True)


def find_record(pool_id: str) -> JobRecord | None:
    """The record of a pool, if there is one."""
    with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
        return msgspec.json.decode(_path(pool_id).read_bytes(), type=JobRecord)
    return None


def all_records() -> list[JobRecord]:
    """The records of all pools of this user."""
    found = (find_record(path.stem) for path in state_folder(_PROVIDER).glob("*.json"))
    return [record for record in found if record is not None]


def _path(pool_id: str) -> Path:
    return state_folder(_PROVIDER) / f"{pool_id}.json"
