"""The results of `%sky check`: facts of ranks, of connections, of all-reduce. Plain data."""

from __future__ import annotations

import msgspec

LISTENING = "TCP"
"""The key in a rank's `troubles` for why it cannot listen."""
EFA = "EFA"
"""The key in a rank's `versions` for the adapters of AWS's fast network that its machine has."""


class RankFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's device and versions, and the `port` where it listens on its node's `address`.

    It has `devices` of this kind with `memory` bytes each; on CPU, the machine's memory. It may use `cpus`,
    and its framework uses `threads`. `troubles` are errors of imports by name, `joined` the frameworks whose
    process groups it is in.
    """

    rank: int
    node: int
    host: str
    address: str
    device: str
    memory: int
    devices: int = 1
    cpus: int = 1
    threads: int = 1
    port: int = 0
    versions: dict[str, str] = {}
    troubles: dict[str, str] = {}
    joined: tuple[str, ...] = ()


class ReachResult(msgspec.Struct, frozen=True):
    """The connection of a rank to the rank `to`: its round trip in seconds, or the trouble."""

    to: int
    seconds: float = 0.0
    trouble: str = ""


class PathSpeed(msgspec.Struct, frozen=True):
    """One TCP connection: its round trip in seconds, its speed in bytes per second one way."""

    round_trip: float
    speed: float


class ReduceTiming(msgspec.Struct, frozen=True):
    """One all-reduce of `size` bytes on each of `places`: seconds on the slowest rank, mean of `calls`."""

    size: int
    places: int
    seconds: float
    calls: int = 1

    @property
    def algorithm_speed(self) -> float:
        """Bytes per second for the caller."""
        return self.size / self.seconds

    @property
    def bus_speed(self) -> float:
        """Bytes per second of each link, if all are used best: to compare with the link's own speed.

        The factor 2(n−1)/n is that of nccl-tests:
        https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
        """
        return self.algorithm_speed * 2 * (self.places - 1) / self.places


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """The speed of one TCP connection between two ranks, of different nodes if possible."""

    ranks: tuple[int, int]
    nodes: tuple[int, int]
    link: PathSpeed


class Reductions(msgspec.Struct, frozen=True, kw_only=True):
    """All-reduces `through` a framework, for as many of the `sizes` in bytes as there was time.

    If none were measured, `why_not` is the reason.
    """

    through: str = ""
    sizes: tuple[int, ...] = ()
    timings: tuple[ReduceTiming, ...] = ()
    why_not: str = ""


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a check so far: ranks, connections, speeds."""

    ranks: tuple[RankFacts, ...]
    reach: dict[int, tuple[ReachResult, ...]] | None = None
    connection: Connection | None = None
    reductions: Reductions | None = None
