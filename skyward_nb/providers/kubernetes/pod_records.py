"""Records of Jobs on disk."""

from __future__ import annotations

from typing import ClassVar

from skyward_nb.providers.far.engine_record import EngineRecord


class PodRecord(EngineRecord, frozen=True, kw_only=True):
    """The Job of a pool: the `context` and `namespace` that it was created in, and its pods once they run.

    `context` is "" within a pod of the cluster. `notice` are the seconds from a pod's notice to its agent's end. With
    `is_left`, its end was not confirmed.
    """

    engine: ClassVar[str] = "kubernetes"
    context: str = ""
    namespace: str = ""
    notice: int = 20
    pods: tuple[str, ...] = ()
    is_left: bool = False

    @property
    def is_orphan(self) -> bool:
        """Whether nobody can find its pool; or it was given up."""
        return self.is_left or super().is_orphan
