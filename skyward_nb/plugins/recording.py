"""A run recorded on this rank, for `profile=comm`: when it begins and ends, whatever records it."""

from __future__ import annotations

import tempfile
import time
import zlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import msgspec

from skyward_nb.plugins.growth import Guard
from skyward_nb.plugins.torch_trace import Event, Interval, length, steady_share
from skyward_nb.runtime.instance import instance_info
from skyward_nb.store.blobs import free_memory
from skyward_nb.words.info import InstanceInfo
from skyward_nb.words.profile import Collective, CommProfile

PREFIX = "sky-profile-"
_PIECE = 1 << 20
_LEVEL = 2
_TO_GZIP = 31
_HURRY = 2.0
_MOST, _SHARE = 256 << 20, 20
"""Bytes that are recorded, half a kilobyte for an operator; it takes nine times as many to end that.

And of a rank's share of what memory is free, what part they are at most.
"""


class Recording(ABC):
    """One run on this rank: `begin` and `end` around it, then `result`; never raises its own trouble."""

    framework: str
    most = _MOST

    def __init__(self) -> None:
        self._profiler: Any = None
        self._began = self._seconds = self._recorded = self._stopping = 0.0
        self._trouble = ""
        share = free_memory() // instance_info().workers_per_node
        self._guard = Guard(
            min(self.most, share // _SHARE), lambda: self._stop(time.perf_counter())
        )

    @abstractmethod
    def _start(self) -> Any:
        """Start the framework's profiler, and return it."""

    @abstractmethod
    def _lost(self) -> str:
        """Why the profiler is no longer ours to stop; "" if it is."""

    @abstractmethod
    def _halt(self) -> None:
        """Stop the profiler."""

    @abstractmethod
    def _exported(self, folder: Path) -> bytes:
        """What was recorded, as the profiler writes it to files; this folder is for them."""

    @abstractmethod
    def _read(self, data: bytes, info: InstanceInfo, base: int) -> CommProfile:
        """The profile in what was exported."""

    def begin(self) -> None:
        """Record from now on."""
        try:
            self._profiler = self._start()
        except Exception as error:  # noqa: BLE001 - the cell runs all the same
            self._fail(error)
        self._began = time.perf_counter()
        self._guard.begin()

    @abstractmethod
    def settle(self) -> None:
        """Wait for what the cell has begun, where the framework works in the background."""

    def end(self) -> None:
        """Record no more."""
        self._guard.end()
        now = time.perf_counter()
        self._seconds = now - self._began
        self._stop(now)

    def _stop(self, now: float) -> None:
        """Stop the profiler, once; on the thread that has started it."""
        if self._profiler is None or self._recorded:
            return
        self._recorded = now - self._began
        if why := self._lost():
            self._profiler = None
            self._trouble = why
            return
        try:
            self._halt()
        except Exception as error:  # noqa: BLE001 - it must not end the run
            self._fail(error)
        self._stopping = time.perf_counter() - now

    def result(self, info: InstanceInfo, base: int, *, in_haste: bool = False) -> CommProfile:
        """What was recorded; times of `events` from `base`, in nanoseconds since 1970.

        In haste, as when it is to make room for others, a long recording is left unread. An
        interrupt of it leaves nothing behind.
        """
        if self._profiler is None:
            return self.without(self._trouble)
        if in_haste and self._stopping > _HURRY:
            return self.without("the run was stopped, and writing so long a recording takes time")
        try:
            with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
                data = self._exported(Path(folder))
            self._profiler = None
            return self._read(data, info, base)
        except Exception as error:  # noqa: BLE001 - a full disk, a format that is not known
            self._fail(error)
            return self.without(self._trouble)

    def without(self, why: str) -> CommProfile:
        """A profile that says only why there is none."""
        self._profiler = None
        return CommProfile(seconds=self._seconds, trouble=why)

    def _profile(
        self,
        found: tuple[list[Interval], float, tuple[Collective, ...]],
        trace: bytes,
        events: list[Event],
    ) -> CommProfile:
        """The profile of the communication that was `found`; `trace` is compressed, `events` are for all ranks."""
        collectives, exposed, kinds = found
        return CommProfile(
            seconds=self._seconds,
            recorded=self._recorded,
            communicating=length(collectives),
            exposed=exposed,
            steady=steady_share(collectives, self._recorded),
            collectives=kinds,
            trace=trace,
            events=compress(msgspec.json.encode(events)[1:-1]),
            framework=self.framework,
        )

    def _fail(self, error: Exception) -> None:
        self._profiler = None
        self._trouble = f"{type(error).__name__}: {error}".partition("\n")[0]


def compress(data: bytes) -> bytes:
    """By gzip, in pieces, so that an interrupt is not kept waiting."""
    packer = zlib.compressobj(_LEVEL, wbits=_TO_GZIP)
    view = memoryview(data)
    parts = [packer.compress(view[at : at + _PIECE]) for at in range(0, len(view), _PIECE)]
    return b"".join((*parts, packer.flush()))
