"""The clock of a run: what is drawn takes no time of ranks."""

import time

from skyward_nb.pool.run_clock import RunClock
from skyward_nb.protocol.events import Phase


def test_no_time_passes_while_it_is_drawn():
    heard = []

    def slow(event):
        heard.append(event)
        time.sleep(0.2)

    clock = RunClock()
    before, began = clock.now(), time.monotonic()
    clock.stopped(slow, Phase("x"))
    drawn = time.monotonic() - began
    assert heard == [Phase("x")]
    assert clock.now() - before < drawn / 2
    assert clock.real(None) is None
    assert clock.real(5.0) >= 5.2


def test_samples_are_asked_for_now_and_then(monkeypatch):
    clock = RunClock()
    assert not clock.is_sample_due()
    later = time.monotonic() + 10
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert clock.is_sample_due()
    assert not clock.is_sample_due()
