"""`profile=comm` for PyTorch: a run recorded by torch's own profiler, and what came of it."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import time
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from skyward_nb.compat.torch_private import is_profiled
from skyward_nb.plugins.growth import Guard
from skyward_nb.plugins.torch_trace import Trace, communication, for_all, read, steady_share
from skyward_nb.runtime.instance import instance_info
from skyward_nb.store.blobs import free_memory
from skyward_nb.words.info import InstanceInfo
from skyward_nb.words.profile import CommProfile

_PIECE = 1 << 20
_LEVEL = 2
_TO_GZIP = 31
_HURRY = 2.0
_MOST, _SHARE = 256 << 20, 20
"""Bytes that are recorded, half a kilobyte for an operator; it takes nine times as many to end that.

And of a rank's share of what memory is free, what part they are at most.
"""
_TALK = re.compile(rb"^(?:USDT|STAGE|INFO):\d{4}-.*\n", re.MULTILINE)
"""What Kineto says each time that it begins and ends."""


class TorchRecording:
    """One run on this rank: `begin` and `end` around it, then `result`; never raises its own trouble."""

    def __init__(self) -> None:
        self._profiler: Any = None
        self._began = self._seconds = self._recorded = self._stopping = 0.0
        self._trouble = ""
        share = free_memory() // instance_info().workers_per_node
        self._guard = Guard(min(_MOST, share // _SHARE), lambda: self._stop(time.perf_counter()))

    def begin(self) -> None:
        """Record from now on."""
        from torch.profiler import ProfilerActivity, profile, supported_activities

        activities = [ProfilerActivity.CPU]
        if _uses_cuda() and ProfilerActivity.CUDA in supported_activities():
            activities.append(ProfilerActivity.CUDA)
        try:
            with _without_talk():
                self._profiler = profile(activities=activities, record_shapes=True)
                self._profiler.start()
        except Exception as error:  # noqa: BLE001 - the cell runs all the same
            self._fail(error)
        self._began = time.perf_counter()
        self._guard.begin()

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
        # torch has one profiler at a time, and none is left where the cell had one of its own.
        if not is_profiled():
            self._profiler = None
            self._trouble = "the cell used torch's profiler itself, and only one can run at a time"
            return
        try:
            with _without_talk():
                self._profiler.stop()
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
            return self._written(info, base)
        except Exception as error:  # noqa: BLE001 - a full disk, a format that is not known
            self._fail(error)
            return self.without(self._trouble)

    def without(self, why: str) -> CommProfile:
        """A profile that says only why there is none."""
        self._profiler = None
        return CommProfile(seconds=self._seconds, trouble=why)

    def _written(self, info: InstanceInfo, base: int) -> CommProfile:
        with tempfile.TemporaryDirectory(prefix="sky-profile-") as folder:
            path = Path(folder) / "trace.json"
            self._profiler.export_chrome_trace(str(path))
            self._profiler = None
            data = path.read_bytes()
        trace: Trace = read(data)
        total, exposed, kinds = communication(trace.traceEvents)
        compressed = _compress(data)
        del data
        events = msgspec.json.encode(for_all(trace, info.rank, info.world_size, base))
        return CommProfile(
            seconds=self._seconds,
            recorded=self._recorded,
            communicating=total,
            exposed=exposed,
            steady=steady_share(trace.traceEvents, self._recorded),
            collectives=kinds,
            trace=compressed,
            events=_compress(events[1:-1]),
        )

    def _fail(self, error: Exception) -> None:
        self._profiler = None
        self._trouble = f"{type(error).__name__}: {error}".partition("\n")[0]


def _uses_cuda() -> bool:
    torch = sys.modules["torch"]
    return torch.cuda.is_available() and torch.cuda.is_initialized()


def _compress(data: bytes) -> bytes:
    """By gzip, in pieces, so that an interrupt is not kept waiting."""
    packer = zlib.compressobj(_LEVEL, wbits=_TO_GZIP)
    view = memoryview(data)
    parts = [packer.compress(view[at : at + _PIECE]) for at in range(0, len(view), _PIECE)]
    return b"".join((*parts, packer.flush()))


@contextmanager
def _without_talk() -> Generator[None]:
    """Meanwhile, what is written to file descriptor 2 waits; Kineto's remarks on itself are left out."""
    before = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)
            said.seek(0)
            if rest := _TALK.sub(b"", said.read()):
                with contextlib.suppress(OSError):
                    os.write(2, rest)
