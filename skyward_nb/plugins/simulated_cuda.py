"""What `torch.cuda` and `torch.accelerator` are on a rank whose GPUs are simulated: counts, streams, seeds.

This imports torch: only ranks that it is for import it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

_NOTHING_OF_CUDA = (
    "init", "ipc_collect", "reset_peak_memory_stats", "reset_max_memory_allocated",
    "reset_max_memory_cached", "reset_accumulated_memory_stats",
)  # fmt: skip
_MEMORY = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")


@dataclass(frozen=True)
class SimulatedGpus:
    """The GPUs of a node that a rank sees: their `count` and `name`, and the index of its `own`.

    `is_said` is whether `torch.cuda.is_available()` and `torch.accelerator` say so.
    """

    count: int
    own: int
    name: str
    is_said: bool

    def checked(self, index: int | None) -> None:
        """Raise RuntimeError for a device that the node would not have."""
        if index is not None and not 0 <= index < self.count:
            last = f", cuda:0 to cuda:{self.count - 1}" if self.count > 1 else ", cuda:0"
            raise RuntimeError(
                f"cuda:{index}: invalid device ordinal: the node has {self.count} × {self.name} "
                f"(simulated){last}"
            )


def nothing(*args: Any, **kwargs: Any) -> None:
    """There is nothing to wait for, or to free."""
    del args, kwargs


class SimulatedEvent:
    """`torch.cuda.Event`: the time at which it was recorded."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        del args, kwargs
        self._at = 0.0

    def record(self, stream: Any = None) -> None:
        """Note the time."""
        del stream
        self._at = time.perf_counter()

    def elapsed_time(self, end_event: SimulatedEvent) -> float:
        """Milliseconds until another one."""
        return 1e3 * (end_event._at - self._at)

    def query(self) -> bool:
        """What was begun is done."""
        return True

    def wait(self, stream: Any = None) -> None:
        """All before it is done."""

    def synchronize(self) -> None:
        """All before it is done."""


class SimulatedStream(torch.Stream):
    """`torch.cuda.Stream`, also as a context: all is done in order."""

    def __new__(cls, *args: Any, **kwargs: Any) -> SimulatedStream:
        """A stream of the CPU."""
        del args, kwargs
        return super().__new__(cls, device="cpu")

    def record_event(self, event: Any = None) -> Any:
        """Note the time."""
        event = event or SimulatedEvent()
        event.record()
        return event

    def query(self) -> bool:
        """What was begun is done."""
        return True

    def __enter__(self) -> SimulatedStream:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to leave."""

    def wait_stream(self, other: torch.Stream) -> None:
        """All of it is done."""

    def wait_event(self, event: torch.Event) -> None:
        """All before it is done."""

    def synchronize(self) -> None:
        """All of it is done."""


class _Current(threading.local):
    """A thread's current device, as CUDA has it: the first, until another one is set."""

    index = 0


current: _Current = _Current()


def of_devices(gpus: SimulatedGpus) -> Iterator[tuple[Any, dict[str, Any]]]:
    """(module, what takes the place of its names), of `torch.cuda` and `torch.accelerator`."""
    stream = SimulatedStream()

    def index_of(device: Any) -> int:
        index = device if device is None or isinstance(device, int) else torch.device(device).index
        gpus.checked(index)
        return current.index if index is None else index

    def set_device(device: Any) -> None:
        current.index = index_of(device)

    class OnDevice:
        """`torch.cuda.device`: another current device meanwhile."""

        def __init__(self, device: Any) -> None:
            self._index, self._before = index_of(device), 0

        def __enter__(self) -> None:
            self._before, current.index = current.index, self._index

        def __exit__(self, *_: object) -> None:
            current.index = self._before

    def name(device: Any = None) -> str:
        index_of(device)
        return f"{gpus.name} (simulated)"

    def seed(number: int) -> None:
        torch.default_generator.manual_seed(int(number))

    def of_both() -> dict[str, Any]:
        # Each has functions of its own: the compiler knows them apart.
        return {
            "is_available": lambda: gpus.is_said,
            "device_count": lambda: gpus.count,
            "current_stream": lambda device=None: stream,
            "synchronize": lambda device=None: None,
            "set_stream": lambda stream: None,
            "empty_cache": lambda: None,
        }

    yield (
        torch.cuda,
        of_both()
        | dict.fromkeys(_NOTHING_OF_CUDA, nothing)
        | {
            "current_device": lambda: current.index,
            "set_device": set_device,
            "device": OnDevice,
            "get_device_name": name,
            "is_bf16_supported": lambda including_emulation=True: True,
            "Stream": SimulatedStream,
            "Event": SimulatedEvent,
            "stream": lambda stream: stream or contextlib.nullcontext(),
            "default_stream": lambda device=None: stream,
            "manual_seed": seed,
            "manual_seed_all": seed,
            "initial_seed": torch.initial_seed,
            "get_rng_state": lambda device="cuda": torch.get_rng_state(),
            "get_rng_state_all": lambda: [torch.get_rng_state()] * gpus.count,
            "set_rng_state": lambda state, device="cuda": torch.set_rng_state(state),
            "set_rng_state_all": lambda states: torch.set_rng_state(states[current.index]),
        },
    )
    yield torch.cuda.nvtx, dict.fromkeys(("range_push", "range_pop", "mark"), nothing)
    indices = dict.fromkeys(("current_device_index", "current_device_idx"), lambda: current.index)
    indices |= dict.fromkeys(("set_device_index", "set_device_idx"), set_device)
    memory = dict.fromkeys(_MEMORY, lambda device=None: 0)
    indices |= {"reset_peak_memory_stats": nothing, "device_index": OnDevice}
    kind = {"current_accelerator": lambda check_available=False: torch.device("cuda")}
    yield torch.accelerator, of_both() | indices | memory | (kind if gpus.is_said else {})
