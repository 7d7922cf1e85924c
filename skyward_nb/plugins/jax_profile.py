"""`profile=comm` for JAX: a run recorded by JAX's own profiler, and what came of it."""

from __future__ import annotations

import gzip
import tempfile
import time
from pathlib import Path
from typing import Any

from skyward_nb.plugins.jax_trace import communication, places
from skyward_nb.plugins.recording import PREFIX, Recording, compress
from skyward_nb.plugins.torch_trace import Trace, for_all, read
from skyward_nb.words.info import InstanceInfo
from skyward_nb.words.profile import CommProfile

_NOT_STARTED = "No profile started"


class JaxRecording(Recording):
    """A run as JAX's profiler records it: operations of XLA, and not each call of Python."""

    framework = "jax"
    most = 1 << 30
    """More than torch's: what is compiled meanwhile, and arrays on CPUs, grow this process as well."""

    def __init__(self) -> None:
        super().__init__()
        self._events = self._trace = b""
        self._began_at = 0

    def _start(self) -> Any:
        import jax

        folder = tempfile.TemporaryDirectory(prefix=PREFIX)
        try:
            options_of = getattr(jax.profiler, "ProfileOptions", None)
            if options_of is None:
                jax.profiler.start_trace(folder.name)
            else:
                options = options_of()
                options.python_tracer_level = 0
                jax.profiler.start_trace(folder.name, profiler_options=options)
        except Exception:
            folder.cleanup()
            raise
        self._began_at = time.time_ns()
        return folder

    def settle(self) -> None:
        """Wait for every array that is still computed, so that its collectives are recorded."""
        import jax

        if self._profiler is not None:
            jax.block_until_ready([each for each in jax.live_arrays() if not each.is_deleted()])

    def _lost(self) -> str:
        return ""

    def _halt(self) -> None:
        import jax

        with self._profiler:
            try:
                jax.profiler.stop_trace()
            except RuntimeError as error:
                if str(error) == _NOT_STARTED:
                    raise RuntimeError("the cell stopped JAX's profiler itself") from None
                raise
            (events,) = Path(self._profiler.name).rglob("*.trace.json.gz")
            (planes,) = Path(self._profiler.name).rglob("*.xplane.pb")
            self._events, self._trace = gzip.decompress(events.read_bytes()), planes.read_bytes()

    def _exported(self, folder: Path) -> bytes:
        del folder
        return self._events

    def _read(self, data: bytes, info: InstanceInfo, base: int) -> CommProfile:
        trace: Trace = read(data)
        trace.traceEvents = [event for event in trace.traceEvents if event.ph]
        trace.baseTimeNanoseconds = self._began_at
        found = communication(trace.traceEvents)
        names = places(trace.traceEvents)
        events = for_all(trace, info.rank, info.world_size, base, names)
        return self._profile(found, compress(self._trace), events)
