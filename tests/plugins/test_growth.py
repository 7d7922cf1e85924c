"""How much a recorder in a process has grown, and its end when that is too much."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from skyward_nb.plugins import growth
from skyward_nb.plugins.growth import Growth, Guard

MB = 1 << 20


@pytest.mark.parametrize(
    ("held", "may_be"),
    [
        ([110, 120, 130], 30),
        ([100, 100], 0),
        # Faster than anything can be recorded: the user's, but for 50 MB in a tenth of a second.
        ([1100, 1100, 1100], 50),
        # Up and down, as of a step that gives back what it takes.
        ([600, 100, 600, 100, 600], 50),
        ([600, 110, 610, 120, 620, 130], 30),
        # Less than before is nothing of a recorder.
        ([50, 60], 10),
    ],
)
def test_what_may_be_the_recorders(held, may_be):
    found = Growth(100 * MB, 0.0)
    for step, each in enumerate(held, 1):
        last = found.saw(each * MB, step / 10)
    assert last == pytest.approx(may_be * MB, abs=100)


def test_it_is_ended_on_the_main_thread(monkeypatch):
    held = iter(range(0, 1000 * MB, MB))
    monkeypatch.setattr(growth, "_held", lambda: next(held))
    monkeypatch.setattr(growth, "_EVERY", 0.01)
    called = []
    before = signal.getsignal(growth._SIGNAL)
    guard = Guard(10 * MB, lambda: called.append(threading.current_thread()))
    guard.begin()
    until = time.monotonic() + 20
    while not called and time.monotonic() < until:
        sum(range(1000))
    assert called == [threading.main_thread()]
    guard.end()
    assert signal.getsignal(growth._SIGNAL) == before
    assert next(held) == 11 * MB + MB, "nobody looks any more"


def test_one_that_ends_while_it_looks_sends_no_signal_after_its_end(monkeypatch):
    """It is not handled any more: it would end the process."""
    looks, goes_on, heard = threading.Event(), threading.Event(), []

    def held():
        if threading.current_thread() not in threads:
            threads.append(threading.current_thread())
            return 0
        looks.set()
        assert goes_on.wait(60)
        return 10 * MB

    threads: list[threading.Thread] = []
    monkeypatch.setattr(growth, "_held", held)
    before = signal.signal(growth._SIGNAL, lambda *_: heard.append("signal"))
    try:
        guard = Guard(MB, lambda: heard.append("full"))
        guard.begin()
        assert looks.wait(60)
        guard.end()
        goes_on.set()
        threads[0].join(60)
        assert not heard
    finally:
        signal.signal(growth._SIGNAL, before)


def test_one_that_ends_in_time_is_not_called(monkeypatch):
    monkeypatch.setattr(growth, "_EVERY", 600)
    called = []
    guard = Guard(-1, lambda: called.append(1))
    guard.begin()
    guard.end()
    guard._on_signal(growth._SIGNAL, None)
    assert not called
    assert guard._over.is_set()
