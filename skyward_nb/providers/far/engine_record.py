"""Records on disk of what engines are asked for, each written before the engine is asked.

A record that stays where its pool is not listed says what may be left: the next pool of that engine ends it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import ClassVar, Self

import msgspec

from skyward_nb.providers.folders import far_root
from skyward_nb.providers.maker_process import MakerProcess
from skyward_nb.providers.state_files import remove, state_folder, write
from skyward_nb.words.decoding import from_json

_APPEARS = 3600.0
"""Seconds in which what was asked for may appear after the engine's answer was lost."""


def listing_of(pool_id: str) -> str:
    """The file that lists a pool of this process's runtime folder while it is up."""
    return str((far_root() / f"{pool_id}.json").absolute())


class EngineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine was asked for, for one pool, by the process `maker`.

    `listing` is the file that lists the pool while it is up, of whichever runtime folder; "" in records of
    earlier versions. With `is_left`, its end was not confirmed. `lost` is when the engine's answer to the request
    was lost, in seconds since 1970: what was asked for may appear later.
    """

    engine: ClassVar[str]
    """The engine's folder of records."""
    title: ClassVar[str]
    """The engine's name for people."""
    beside: ClassVar[tuple[str, ...]] = ()
    """The suffixes of files beside a record."""
    pool_id: str
    maker: MakerProcess
    listing: str = ""
    is_left: bool = False
    lost: float = 0.0

    @property
    def is_orphan(self) -> bool:
        """Whether it was given up, or nobody can find its pool: no process makes it, and it is not listed."""
        return self.is_left or not (self.maker.may_live or self._is_listed)

    @property
    def is_foreign(self) -> bool:
        """Whether another computer made it, which alone knows whether it is an orphan."""
        return not (self.is_left or self.maker.is_here or self._is_listed)

    @property
    def _is_listed(self) -> bool:
        return Path(self.listing or listing_of(self.pool_id)).exists()

    @property
    def is_answered(self) -> bool:
        """Whether it tells the engine's answer to the request."""
        raise NotImplementedError

    @property
    def written(self) -> float:
        """When its file was written, in seconds since 1970; 0 where that is gone."""
        with contextlib.suppress(FileNotFoundError):
            return self.path.stat().st_mtime
        return 0.0

    @property
    def path(self) -> Path:
        """The file that it is in."""
        return self._path(self.pool_id, "json")

    def may_appear(self, now: float) -> bool:
        """Whether what was asked for may still come, as the engine's answer was lost."""
        return now - self.lost < _APPEARS

    def write(self) -> None:
        """Write it, whole or not at all; raises OSError."""
        self.write_beside("json", msgspec.json.encode(self))

    def write_beside(self, suffix: str, data: bytes) -> Path:
        """Write a file of its name with this suffix, whole or not at all; raises OSError."""
        path = self._path(self.pool_id, suffix)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write(path, data)
        return path

    def remove(self) -> None:
        """Remove it and the files beside it: nothing of what was asked for is left."""
        for suffix in (*self.beside, "json"):
            remove(self._path(self.pool_id, suffix))

    @classmethod
    def used(cls) -> bool:
        """Whether anything was ever asked of this engine from here."""
        return state_folder(cls.engine).exists()

    @classmethod
    def find(cls, pool_id: str) -> Self | None:
        """The record of a pool, if there is one."""
        with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
            return from_json(cls._path(pool_id, "json").read_bytes(), cls)
        return None

    @classmethod
    def every(cls) -> list[Self]:
        """The records of all pools of this user."""
        found = (cls.find(path.stem) for path in state_folder(cls.engine).glob("*.json"))
        return [record for record in found if record is not None]

    @classmethod
    def _path(cls, pool_id: str, suffix: str) -> Path:
        return state_folder(cls.engine) / f"{pool_id}.{suffix}"
