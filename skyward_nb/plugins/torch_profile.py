"""`profile=comm` for PyTorch: a run recorded by torch's own profiler, and what came of it."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from skyward_nb.compat.torch_private import is_profiled
from skyward_nb.plugins.recording import Recording, compress
from skyward_nb.plugins.torch_trace import Trace, communication, for_all, read
from skyward_nb.words.info import InstanceInfo
from skyward_nb.words.profile import CommProfile

_TALK = re.compile(rb"^(?:USDT|STAGE|INFO):\d{4}-.*\n", re.MULTILINE)
"""What Kineto says each time that it begins and ends."""


class TorchRecording(Recording):
    """A run as torch's profiler records it."""

    framework = "torch"

    def _start(self) -> Any:
        from torch.profiler import ProfilerActivity, profile, supported_activities

        activities = [ProfilerActivity.CPU]
        if _uses_cuda() and ProfilerActivity.CUDA in supported_activities():
            activities.append(ProfilerActivity.CUDA)
        # torch 2.11 warns of later cycles, of which there are none here.
        with _without_talk(), warnings.catch_warnings(action="ignore"):
            profiler = profile(activities=activities, record_shapes=True)
            profiler.start()
        return profiler

    def settle(self) -> None:
        """The cell's code has waited for all that it uses."""

    def _lost(self) -> str:
        # torch has one profiler at a time, and none is left where the cell had one of its own.
        if is_profiled():
            return ""
        return "the cell used torch's profiler itself, and only one can run at a time"

    def _halt(self) -> None:
        with _without_talk():
            self._profiler.stop()

    def _exported(self, folder: Path) -> bytes:
        path = folder / "trace.json"
        self._profiler.export_chrome_trace(str(path))
        return path.read_bytes()

    def _read(self, data: bytes, info: InstanceInfo, base: int) -> CommProfile:
        trace: Trace = read(data)
        found = communication(trace.traceEvents)
        compressed = compress(data)
        del data
        return self._profile(found, compressed, for_all(trace, info.rank, info.world_size, base))


def _uses_cuda() -> bool:
    torch = sys.modules["torch"]
    return torch.cuda.is_available() and torch.cuda.is_initialized()


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
