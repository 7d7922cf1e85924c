"""The clock of a run: what is drawn takes no time of ranks."""

import time

from skyward_nb.pool.run_clock import RunClock
from skyward_nb.protocol.events import Phase


def test_no_time_passes_while_it_is_drawn():
    heard = []

    def slow(event):
        heard.append(event)
        time.sleep(0.2)

    pace = RunClock()
    before, began = pace.now(), time.monotonic()
    pace.stopped(slow, Phase("x"))
    drawn = time.monotonic() - began
    assert heard == [Phase("x")]
    assert pace.now() - before < drawn / 2
    assert pace.real(None) is None
    assert pace.real(5.0) >= 5.2


def test_samples_are_asked_for_now_and_then(monkeypatch):
    pace = RunClock()
    assert not pace.is_sample_due()
    later = time.monotonic() + 10
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert pace.is_sample_due()
    assert not pace.is_sample_due()
