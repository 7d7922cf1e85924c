"""Records of Jobs on disk."""

from __future__ import annotations

import os
from typing import ClassVar

from skyward_nb.providers.far.engine_record import EngineRecord


class PodRecord(EngineRecord, frozen=True, kw_only=True):
    """The Job of a pool: the `context` and `namespace` that it was created in, and its pods once they run.

    `context` is "" within a pod of the cluster. `kubeconfig` is what KUBECONFIG was then, None in records of earlier
    versions, and `server` the cluster's address by it: another file may have a context of that name. `notice` are
    the seconds from a pod's notice to its agent's end.
    """

    engine: ClassVar[str] = "kubernetes"
    title: ClassVar[str] = "Kubernetes"
    context: str = ""
    namespace: str = ""
    kubeconfig: str | None = None
    server: str = ""
    notice: int = 20
    pods: tuple[str, ...] = ()

    @property
    def is_answered(self) -> bool:
        """See `EngineRecord.is_answered`."""
        return bool(self.pods)

    @property
    def environ(self) -> dict[str, str] | None:
        """The environment in which kubectl knows its cluster; None: that of this process."""
        return None if self.kubeconfig is None else {**os.environ, "KUBECONFIG": self.kubeconfig}
