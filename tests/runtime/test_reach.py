"""Whether ranks reach one another, as a rank finds it that is held up itself."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace

from skyward_nb.runtime import reach

WORD = b"sixteen bytes ok"


def test_time_in_which_this_process_had_no_processor_does_not_count(monkeypatch):
    """The others have answered meanwhile."""
    listening = reach.ProbeListener(3, "127.0.0.1", WORD)
    held_up = itertools.count(0.0, 10.0)
    clock = SimpleNamespace(monotonic=lambda: next(held_up), perf_counter=time.perf_counter)
    monkeypatch.setattr(reach, "time", clock)
    try:
        (way,) = reach.reach([(3, "127.0.0.1", listening.port)], WORD, patience=5)
    finally:
        listening.close()
    assert not way.trouble
