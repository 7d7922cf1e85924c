"""All-reduce timed by message size, through the framework that joins the ranks.

How often it is called must be the same on all ranks, so it follows from the time that the slowest
of them took, which an all-reduce of its own tells all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from skyward_nb.words.findings import ReduceTiming

_MOST_CALLS = 50
_EACH = 0.15
_ITEM = 4


class Reducer(Protocol):
    """All ranks, able to reduce."""

    places: int

    def prepare(self, count: int) -> Callable[[], object]:
        """A function that all-reduces so many 32-bit numbers, and returns when that is done."""
        ...

    def most(self, value: float) -> float:
        """The highest value of all ranks."""
        ...


def all_reduces(framework: str, sizes: Iterable[int], seconds: float = 4.0) -> list[ReduceTiming]:
    """Time all-reduces of these sizes in bytes, the smallest first; on all ranks at once.

    Those that would not be done in about so many seconds are left out. Raises what the framework
    raises.
    """
    reducer: Reducer = {"torch": _Torch, "jax": _Jax}[framework]()
    return timed(reducer, sizes, seconds)


def timed(reducer: Reducer, sizes: Iterable[int], seconds: float) -> list[ReduceTiming]:
    """The timings of a reducer."""
    found: list[ReduceTiming] = []
    spent = 0.0
    for size in sizes:
        before = found[-1] if found else None
        if before is not None and spent + 3 * before.seconds * size / before.size > seconds:
            break
        call = reducer.prepare(max(1, size // _ITEM))
        call()
        once = reducer.most(_time(call, 1))
        calls = calls_for(once)
        mean = reducer.most(_time(call, calls) / calls)
        spent += (2 * once) + calls * mean
        found.append(ReduceTiming(size, reducer.places, mean, calls))
    return found


def calls_for(once: float) -> int:
    """How often to call a function that takes so many seconds."""
    return max(1, min(_MOST_CALLS, int(_EACH / max(once, 1e-9))))


def _time(call: Callable[[], object], calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return time.perf_counter() - began


class _Torch:
    """The default process group, and memory of the device that its backend is for."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self.places = dist.get_world_size()
        on_gpu = torch.cuda.is_available() and "nccl" in str(dist.get_backend_config())
        self._device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else "cpu"

    def prepare(self, count: int) -> Callable[[], object]:
        import torch
        import torch.distributed as dist

        numbers = torch.zeros(count, dtype=torch.float32, device=self._device)
        if self._device == "cpu":
            return lambda: dist.all_reduce(numbers)

        def call() -> None:
            dist.all_reduce(numbers)
            torch.cuda.synchronize()

        return call

    def most(self, value: float) -> float:
        import torch
        import torch.distributed as dist

        number = torch.tensor([value], dtype=torch.float64, device=self._device)
        dist.all_reduce(number, op=dist.ReduceOp.MAX)
        return number.item()


class _Jax:
    """All devices of all ranks, each with a message of its own."""

    def __init__(self) -> None:
        import jax
        import numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        devices = jax.devices()
        self.places = len(devices)
        self._mesh = Mesh(np.asarray(devices), ("all",))
        self._sharding = NamedSharding(self._mesh, PartitionSpec("all"))

    def prepare(self, count: int) -> Callable[[], object]:
        import jax

        numbers = self._spread(0.0, count)
        reduce = self._compiled(jax.lax.psum)
        return lambda: reduce(numbers).block_until_ready()

    def most(self, value: float) -> float:
        import jax
        import numpy as np

        return float(np.asarray(self._compiled(jax.lax.pmax)(self._spread(value, 1)))[0, 0])

    def _spread(self, value: float, count: int) -> Any:
        import jax
        import numpy as np

        local = np.full((jax.local_device_count(), count), value, np.float32)
        shape = (self.places, count)
        return jax.make_array_from_process_local_data(self._sharding, local, shape)

    def _compiled(self, reduce: Callable[[Any, str], Any]) -> Callable[[Any], Any]:
        import jax
        from jax.sharding import PartitionSpec

        return jax.jit(
            jax.shard_map(
                lambda numbers: reduce(numbers, "all"),
                mesh=self._mesh,
                in_specs=PartitionSpec("all"),
                out_specs=PartitionSpec(),
            )
        )
