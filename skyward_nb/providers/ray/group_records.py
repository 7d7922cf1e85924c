"""Records of placement groups on disk."""

from __future__ import annotations

from typing import ClassVar

from skyward_nb.providers.far.engine_record import EngineRecord
from skyward_nb.words.provider_access import RayAccess


class GroupRecord(EngineRecord, frozen=True, kw_only=True):
    """The group of a pool of so many nodes; `nodes` are their names, empty until its actors run.

    `cluster` is the address that leads to its cluster, whatever `auto` leads to now; "" in records of earlier versions.
    """

    engine: ClassVar[str] = "ray"
    title: ClassVar[str] = "Ray"
    access: RayAccess
    count: int
    cluster: str = ""
    nodes: tuple[str, ...] = ()

    @property
    def is_answered(self) -> bool:
        """See `EngineRecord.is_answered`."""
        return bool(self.nodes)
