"""The communication of a run, recorded by one rank. Plain data."""

from __future__ import annotations

import msgspec

OF_ALL = ("all_", "reduce_scatter", "backward", "wait_tensor", "DistributedDataParallel.")
"""How collectives begin in which all ranks give and get alike, and the functions that wait for them."""
MOST_ONE_SIDED = 0.1
"""The share of other ones from which on nothing is said of slow ranks: by design, ranks differ in them."""


class Collective(msgspec.Struct, frozen=True):
    """One kind of collective: its number of calls, its total seconds, and its amount of data.

    `values` is the number of elements in its messages, `size` their bytes; 0 if not recorded.
    """

    name: str
    count: int
    seconds: float
    values: int = 0
    size: int = 0


class CommProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of a run on a rank, those spent in collectives, and the `exposed` of these.

    Waiting for other ranks counts as time in a collective. Exposed is the part in which the rank's
    framework did nothing else. `steady` is the share in collectives but for the longest of them. All are of the
    `recorded` seconds from the run's beginning, fewer than the run had where its recording took too much
    memory. `trace` is the recording as its `framework` writes it, JSON of PyTorch or JAX's `xplane.pb`;
    `events` are those of it that are put with those of other ranks, in JSON. Both are compressed by gzip, or
    empty where there was `trouble`, which says it in words.
    """

    seconds: float = 0.0
    recorded: float = 0.0
    communicating: float = 0.0
    exposed: float = 0.0
    steady: float = 0.0
    collectives: tuple[Collective, ...] = ()
    trace: bytes = b""
    events: bytes = b""
    trouble: str = ""
    framework: str = "torch"
