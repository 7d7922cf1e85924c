"""The clock of a run: what is drawn takes no time of ranks."""

from types import SimpleNamespace

import pytest

from skyward_nb.pool import run_clock
from skyward_nb.pool.run_clock import RunClock
from skyward_nb.protocol.events import Phase


@pytest.fixture
def machine(monkeypatch):
    """The clock of this machine, which is moved by hand."""
    made = SimpleNamespace(at=100.0, monotonic=lambda: made.at)
    monkeypatch.setattr(run_clock, "time", made)
    return made


def test_no_time_passes_while_it_is_drawn(machine):
    heard = []

    def slow(event):
        heard.append(event)
        machine.at += 0.25

    clock = RunClock()
    before = clock.now()
    clock.stopped(slow, Phase("x"))
    assert heard == [Phase("x")]
    assert clock.now() == before
    assert clock.real(None) is None
    assert clock.real(5.0) == 5.25


def test_samples_are_asked_for_now_and_then(machine):
    clock = RunClock()
    assert not clock.is_sample_due()
    machine.at += 10
    assert clock.is_sample_due()
    assert not clock.is_sample_due()
