"""A trace as PyTorch's profiler writes it: which parts are communication, and made ready to be merged.

Pure. Sources: `torch/csrc/distributed/c10d/Work.cpp` (ranges of gloo's work), `torch/csrc/
distributed/c10d/ParamCommsUtils.hpp` (what is recorded of NCCL's), Kineto's `output_json.cpp`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from skyward_nb.words.decoding import from_json
from skyward_nb.words.profile import Collective

Interval = tuple[float, float]

_MEGA = 1e6
_RANGE = re.compile(r"(?:gloo|mpi|ucc|xccl):(\w+)")
"""Of work that a backend does on a thread: from its beginning until all of it is done."""
_NCCL_KERNEL = re.compile(r"nccl(?:Dev)?Kernel_([A-Za-z]+)")
_OWN = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "autograd", "symm_mem")
"""Operators of these name spaces communicate, wait for it, or only hold others."""
_LIKE = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "allgatherbase": "all_gather",
    "reducescatter": "reduce_scatter",
    "reducescatterbase": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallbase": "all_to_all",
    "sendrecv": "send_recv",
}
_BYTES = {"Double": 8, "Long": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2}
_PLACES = 1000


class Event(msgspec.Struct, gc=False):
    """An event of a trace; times in microseconds."""

    ph: str = ""
    name: str = ""
    cat: str | msgspec.UnsetType = msgspec.UNSET
    pid: int | str = 0
    tid: int | str = 0
    ts: float | msgspec.UnsetType = msgspec.UNSET
    dur: float | msgspec.UnsetType = msgspec.UNSET
    id: int | str | msgspec.UnsetType = msgspec.UNSET
    bp: str | msgspec.UnsetType = msgspec.UNSET
    s: str | msgspec.UnsetType = msgspec.UNSET
    args: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    @property
    def interval(self) -> Interval:
        """From when until when."""
        start = self.ts or 0.0
        return start, start + (self.dur or 0.0)

    def arguments(self) -> dict[str, Any]:
        """What is recorded with it."""
        return from_json(self.args, dict[str, Any]) if isinstance(self.args, msgspec.Raw) else {}


class Trace(msgspec.Struct):
    """A whole trace; what its times are counted from is in nanoseconds since 1970."""

    traceEvents: list[Event]  # noqa: N815 - the format's name
    baseTimeNanoseconds: int = 0  # noqa: N815


def read(data: bytes) -> Trace:
    """The trace in this JSON; raises ValueError for what is none."""
    return from_json(data, Trace)


# ── communication ───────────────────────────────────────────────────────────────────────


def communication(
    events: Iterable[Event],
) -> tuple[list[Interval], float, tuple[Collective, ...]]:
    """The times in collectives, the seconds of them that nothing else overlaps, and each kind of collective.

    Those that run at the same time count once in the first two, whose times are as `union` has them.
    """
    times: dict[str, list[Interval]] = {}
    sizes: dict[str, tuple[int, int]] = {}
    host: list[Interval] = []
    kernels: list[Interval] = []
    for event in events:
        if event.ph != "X":
            continue
        if (name := _collective(event)) is not None:
            times.setdefault(name, []).append(event.interval)
            if event.cat == "kernel":
                _add(sizes, name, _message(event))
        elif event.cat == "kernel":
            kernels.append(event.interval)
        elif event.cat == "cpu_op":
            space, colons, function = event.name.partition("::")
            if space == "c10d" and colons:
                _add(sizes, plain(function), _operands(event))
            elif colons and space not in _OWN:
                host.append(event.interval)
    all_of_them = union(each for intervals in times.values() for each in intervals)
    other = union(kernels or host)
    kinds = [
        Collective(name, len(found), length(union(found)), *sizes.get(name, (0, 0)))
        for name, found in times.items()
    ]
    exposed = length(all_of_them) - length(overlap(all_of_them, other))
    return all_of_them, exposed, tuple(sorted(kinds, key=lambda kind: -kind.seconds))


def steady_share(collectives: Iterable[Interval], recorded: float) -> float:
    """The share of so many seconds that was in these, which do not overlap, but for the longest tenth.

    Who was waited for once, to save a model or to compile, is not slow.
    """
    lengths = sorted((end - start) / _MEGA for start, end in collectives)
    longest = -(-len(lengths) // 10)
    kept = lengths[: len(lengths) - longest]
    rest = recorded - sum(lengths[len(kept) :])
    return min(1.0, sum(kept) / rest) if rest > 0 else 0.0


def _collective(event: Event) -> str | None:
    """The name of the collective that this event is the time of."""
    if event.cat == "user_annotation" and (found := _RANGE.fullmatch(event.name)):
        return plain(found[1])
    if event.cat == "kernel" and event.name.startswith("nccl"):
        said = event.arguments().get("Collective name")
        found = _NCCL_KERNEL.match(event.name)
        return plain(said or (found[1] if found else event.name))
    return None


def plain(name: str) -> str:
    """`all_reduce` for what is called that, `allreduce_` or `AllReduce`."""
    joined = name.replace("_", "").lower()
    return _LIKE.get(joined, _LIKE.get(joined.removesuffix("coalesced"), name.strip("_").lower()))


def _add(sizes: dict[str, tuple[int, int]], name: str, more: tuple[int, int]) -> None:
    values, size = sizes.get(name, (0, 0))
    sizes[name] = values + more[0], size + more[1]


def _message(event: Event) -> tuple[int, int]:
    """Numbers and bytes that a kernel of NCCL's was given."""
    said = event.arguments()
    count = int(said.get("In msg nelems", 0))
    return count, count * _BYTES.get(str(said.get("dtype", "")), 0)


def _operands(event: Event) -> tuple[int, int]:
    """How many numbers an operator of c10d was given; of what type, is not recorded of lists."""
    dims = event.arguments().get("Input Dims") or []
    lists = [each for each in dims if each and isinstance(each[0], list)]
    return (sum(map(_count, lists[0])) if lists else 0), 0


def _count(shape: Iterable[int]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same times as intervals that do not touch, in order."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            if end > found[-1][1]:
                found[-1] = found[-1][0], end
        else:
            found.append((start, end))
    return found


def overlap(one: list[Interval], other: list[Interval]) -> Iterator[Interval]:
    """The times that are in both of two unions."""
    i = j = 0
    while i < len(one) and j < len(other):
        start, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if start < end:
            yield start, end
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1


def length(intervals: Iterable[Interval]) -> float:
    """Their seconds together."""
    return sum(end - start for start, end in intervals) / _MEGA


# ── one trace of all ranks ──────────────────────────────────────────────────────────────


def for_all(
    trace: Trace,
    rank: int,
    world_size: int,
    base: int,
    places: Mapping[int | str, str] | None = None,
) -> list[Event]:
    """The events as those of `rank` among others: its name on its processes, no number twice.

    Times are counted from `base`, in nanoseconds since 1970. `places` says what processes are called
    beside the rank, if not GPUs by their numbers. Changes the events themselves.
    """
    shift = (trace.baseTimeNanoseconds - base) / 1000
    numbers: dict[int | str, int] = {}
    own = _process(trace.traceEvents)
    kept: list[Event] = []
    for event in trace.traceEvents:
        before = event.pid
        event.pid = numbers.setdefault(before, rank * _PLACES + len(numbers))
        if event.ts:
            event.ts += shift
        if isinstance(event.id, int):
            event.id = event.id * world_size + rank
        if event.ph != "M" or event.name not in ("process_name", "process_sort_index"):
            kept.append(event)
    for before, number in numbers.items():
        place = _place(before, own) if places is None else places.get(before, "")
        name = f"rank {rank} · {place}" if place else f"rank {rank}"
        kept.append(_about(number, "process_name", {"name": name}))
        kept.append(_about(number, "process_sort_index", {"sort_index": number}))
    return kept


def _process(events: Iterable[Event]) -> int | str | None:
    """The process whose operators these are."""
    return next((event.pid for event in events if event.cat in ("cpu_op", "user_annotation")), None)


def _place(pid: int | str, own: int | str | None) -> str:
    if pid == own:
        return ""
    return f"GPU {pid}" if isinstance(pid, int) else pid


def _about(pid: int, name: str, args: dict[str, object]) -> Event:
    return Event(ph="M", name=name, pid=pid, args=msgspec.Raw(msgspec.json.encode(args)))
