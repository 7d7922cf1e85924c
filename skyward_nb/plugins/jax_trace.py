"""A trace as JAX's profiler writes it: which parts are communication, and what its processes are.

Pure. An operation of XLA is an event that says its `hlo_op`. On CPUs a collective lasts from its call
until it is done; on GPUs that is what NCCL's kernels do, and the host only calls them. Source: XLA's
`backends/cpu/runtime/thunk_executor.cc`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from skyward_nb.plugins.torch_trace import Event, Interval, length, overlap, plain, union
from skyward_nb.words.profile import Collective

_COLLECTIVE = re.compile(
    r"(all-reduce|all-gather|reduce-scatter|all-to-all|ragged-all-to-all|collective-permute|"
    r"collective-broadcast|send|recv)(-start|-done)?(?:\.\d+)*"
)
_KERNEL = re.compile(r"nccl(?:Dev)?Kernel_([A-Za-z]+)")
_HOLDS_OTHERS = re.compile(r"(?:while|call|conditional|async-start|async-done)(?:\.\d+)*")
_DEVICE = "/device:"


def communication(
    events: Iterable[Event],
) -> tuple[list[Interval], float, tuple[Collective, ...]]:
    """The times in collectives, the seconds of them that nothing else overlaps, and each kind of collective.

    Those that run at the same time count once in the first two, whose times are as `union` has them. How much data they had is not recorded.
    """
    every = [event for event in events if event.ph == "X"]
    on_gpu = any(_KERNEL.match(event.name) for event in every)
    times: dict[str, list[Interval]] = {}
    counts: dict[str, int] = {}
    other: list[Interval] = []
    for event in every:
        operation = str(event.arguments().get("hlo_op", ""))
        kernel, found = _KERNEL.match(event.name), _COLLECTIVE.fullmatch(operation)
        if on_gpu and kernel:
            name, is_call = plain(kernel[1]), True
        elif not on_gpu and found and event.name == operation:
            name, is_call = found[1].replace("-", "_"), found[2] != "-done"
        else:
            if operation and not found and not _HOLDS_OTHERS.fullmatch(operation):
                other.append(event.interval)
            continue
        times.setdefault(name, []).append(event.interval)
        counts[name] = counts.get(name, 0) + is_call
    all_of_them = union(each for intervals in times.values() for each in intervals)
    exposed = length(all_of_them) - length(overlap(all_of_them, union(other)))
    kinds = [Collective(name, counts[name], length(union(found))) for name, found in times.items()]
    return all_of_them, exposed, tuple(sorted(kinds, key=lambda kind: -kind.seconds))


def places(events: Iterable[Event]) -> Mapping[int | str, str]:
    """What each process of a trace is: `GPU:0`, or "" for the rank itself."""
    names = {
        event.pid: str(event.arguments().get("name", ""))
        for event in events
        if event.ph == "M" and event.name == "process_name"
    }
    return {
        pid: name.removeprefix(_DEVICE).partition(" ")[0] if name.startswith(_DEVICE) else ""
        for pid, name in names.items()
    }
