"""What `%sky check` finds out: of a rank, of the way between two, of all-reduce. Plain data."""

from __future__ import annotations

import msgspec

LISTENING = "TCP"
"""Under this name a rank's troubles say why it cannot listen."""


class RankFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's device and versions, and the `port` where it listens on its node's `address`.

    It has `devices` of this kind with `memory` bytes each; on CPU that is what its machine has.
    `cpus` are those it may use, `threads` those its framework does. `troubles` say by name what
    could not be imported, `joined` which frameworks' process groups it is in.
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
    """A rank's way to the rank `to`: seconds there and back, or the trouble in words."""

    to: int
    seconds: float = 0.0
    trouble: str = ""


class PathSpeed(msgspec.Struct, frozen=True):
    """What one TCP connection carries: seconds there and back, bytes per second one way."""

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
        """Bytes per second, as whoever calls it sees it."""
        return self.size / self.seconds

    @property
    def bus_speed(self) -> float:
        """Bytes per second that a link carries where all are used best: to compare with its own.

        The factor 2(n−1)/n is that of nccl-tests:
        https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
        """
        return self.algorithm_speed * 2 * (self.places - 1) / self.places


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """What one TCP connection between two ranks carries, those of different nodes if there are."""

    ranks: tuple[int, int]
    nodes: tuple[int, int]
    link: PathSpeed


class Reductions(msgspec.Struct, frozen=True, kw_only=True):
    """All-reduces `through` a framework, of as many of `sizes` bytes as there was time for.

    Where they were not measured, `why_not` says why.
    """

    through: str = ""
    sizes: tuple[int, ...] = ()
    timings: tuple[ReduceTiming, ...] = ()
    why_not: str = ""


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What a check of a pool has found so far: its ranks, how each reached the others, how fast."""

    ranks: tuple[RankFacts, ...]
    reach: dict[int, tuple[ReachResult, ...]] | None = None
    connection: Connection | None = None
    reductions: Reductions | None = None
