"""What `--json` prints: one document each, of these types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from skyward_nb.cli.phrases import at_terminal
from skyward_nb.cli.rehearsal_acts import ActEnd
from skyward_nb.logs.log_reader import LogLine
from skyward_nb.pool.registry import PoolEntry, ended_of
from skyward_nb.reports.found_pools import why_silent
from skyward_nb.reports.hang_check import RunStanding
from skyward_nb.reports.run_logs import LogRow
from skyward_nb.reports.status import PoolRow
from skyward_nb.words.baked_image import BakedImage
from skyward_nb.words.findings import Findings
from skyward_nb.words.node_log_entry import NodeLogEntry

if TYPE_CHECKING:
    from skyward_nb.reports.cleanup import CleanupReport


class SilentPool(msgspec.Struct, frozen=True):
    """A pool elsewhere that does not answer, and what is known of it: it may cost, but for one that is `gone`."""

    name: str
    id: str
    gone: bool
    why: str

    @classmethod
    def of(cls, entry: PoolEntry) -> SilentPool:
        """What is known of such a pool."""
        why = at_terminal(why_silent(entry))
        return cls(entry.spec.name, entry.pool_id, bool(ended_of(entry)), why)


class Status(msgspec.Struct, frozen=True):
    """The pools that are alive, the youngest first, and the `silent` ones."""

    pools: tuple[PoolRow, ...]
    silent: tuple[SilentPool, ...] = ()


class Runs(msgspec.Struct, frozen=True):
    """The runs whose output is on disk, newest first."""

    runs: tuple[LogRow, ...]


class Log(LogRow, frozen=True, kw_only=True):
    """What ranks printed in a run; `left_out` lines before these were not asked for."""

    left_out: int
    lines: tuple[LogLine, ...]


class Nodes(msgspec.Struct, frozen=True):
    """Log entries of the machines of a pool; `hosts` gives the nodes of each.

    `left_out` lines before these were not asked for.
    """

    pool: str
    hosts: dict[str, tuple[int, ...]]
    left_out: int
    lines: tuple[NodeLogEntry, ...]


class EndedPool(msgspec.Struct, frozen=True):
    """A pool that is down, how many ranks it had, and dollars that it has cost, where it cost any.

    `may_run` names machines that may run on all the same, and cost, `stopped` those that were stopped, at which price.
    """

    name: str
    id: str
    ranks: int
    cost: float | None = None
    may_run: str = ""
    stopped: str = ""


class KeptPool(msgspec.Struct, frozen=True):
    """A pool that is still up, and why."""

    name: str
    id: str
    why: str


class Down(msgspec.Struct, frozen=True):
    """Pools that were taken down, and those that could not be; `folders` of dead pools that were removed, too."""

    ended: tuple[EndedPool, ...]
    kept: tuple[KeptPool, ...]
    folders: int = 0


class Sweep(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was left of pools that are gone, and is gone, too, now: `values` in bytes.

    Of what was rented: `machines`, `groups` and Elastic IP `addresses` that were ended, and `records` of pools that are
    gone; `jobs` in Slurm's queue, Jobs of `pods` on Kubernetes, `placement_groups` of Ray, and `clusters` of SkyPilot.
    Machines wait `stopped` for a later pool; `images` were half made, and `baked` ones stay. What is `left` although it
    should not be has its reason; `others` are machines and jobs of other owners.
    """

    folders: int
    values: int
    processes: int
    machines: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    baked: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    placement_groups: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @classmethod
    def of(cls, swept: CleanupReport) -> Sweep:
        """The document of a report."""
        from skyward_nb.providers.kubernetes.pod_records import PodRecord
        from skyward_nb.providers.ray.group_records import GroupRecord
        from skyward_nb.providers.skypilot.cluster_records import ClusterRecord
        from skyward_nb.providers.slurm.job_records import JobRecord

        here, found = swept.here, swept.reports.values()
        rented = swept.rented
        of_rented = (
            {}
            if rented is None
            else {
                "machines": tuple(rented.machines),
                "groups": tuple(rented.others),
                "addresses": tuple(rented.addresses),
                "records": tuple(rented.records),
                "stopped": tuple(rented.stopped),
                "images": tuple(rented.images),
                "baked": tuple(rented.baked),
            }
        )
        return cls(
            here.folders,
            here.values,
            here.processes,
            jobs=tuple(swept.of(JobRecord).ended),
            pods=tuple(swept.of(PodRecord).ended),
            placement_groups=tuple(swept.of(GroupRecord).ended),
            clusters=tuple(swept.of(ClusterRecord).ended),
            left=tuple(text for each in found for text in each.left),
            others=tuple(text for each in found for text in each.foreign),
            **of_rented,
        )


class Baked(msgspec.Struct, frozen=True):
    """The baked images that there are; half-made ones that were `removed`, and what is `left` of them, and why."""

    images: tuple[BakedImage, ...]
    removed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class Check(msgspec.Struct, frozen=True):
    """What a check of a pool has found."""

    pool: str
    found: Findings


class Hang(msgspec.Struct, frozen=True):
    """How the runs of pools stand."""

    pools: tuple[RunStanding, ...]


class Rehearsal(msgspec.Struct, frozen=True):
    """What the acts of a rehearsal have shown, and what is `left` although it should not be."""

    acts: tuple[ActEnd, ...]
    left: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether all was shown, and nothing is left."""
        return not self.left and all(each.holds for each in self.acts)


class Trouble(msgspec.Struct, frozen=True):
    """What hindered a command: the class of the error, and its words."""

    type: str
    message: str


class Troubled(msgspec.Struct, frozen=True):
    """What is printed instead when a command could not do its work."""

    error: Trouble


def show(document: msgspec.Struct) -> None:
    """Print a document."""
    print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
