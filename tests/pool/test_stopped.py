"""This process is stopped for longer than ranks have to end: what ended in time is not late."""

from __future__ import annotations

import os
import signal
import time

import pytest
from pools import request, values

from skyward_nb.protocol.commands import Interrupt
from skyward_nb.protocol.events import Output, RunInterrupted


@pytest.fixture
def stopped_after(monkeypatch):
    """Has a pool's process do nothing for some seconds, once it knows what is asked for."""

    def arrange(pool, seconds, comes):
        real, came = pool.lines.next, []

        def late(timeout):
            if came == [True]:
                came.append(False)
                time.sleep(seconds)
            event = real(timeout)
            if not came and comes(event):
                came.append(True)
            return event

        monkeypatch.setattr(pool.lines, "next", late)

    return arrange


def test_who_ended_within_grace_is_not_killed(make, stopped_after):
    pool = make(nodes=1, ranks_per_node=2, grace=4.0)
    assert values(pool, "import time\nkept = 7\nkept") == [7, 7]
    stopped_after(pool, 5, lambda event: isinstance(event, RunInterrupted))
    said = []

    def watch(event):
        if isinstance(event, Output) and "here" in event.text:
            said.append(event.rank)
            if len(set(said)) == 2:
                os.kill(os.getpid(), signal.SIGINT)

    outcome = pool.run(request(pool, "print('here', flush=True)\ntime.sleep(60)"), watch)
    assert outcome.interrupted and not outcome.lost, outcome.lost
    assert values(pool, "kept") == [7, 7]


def test_a_run_that_was_interrupted_before_it_began_leaves_the_path_to_modules(
    make, tmp_path, monkeypatch
):
    def goes_on(timeout):
        event = before(timeout)
        if isinstance(event, RunInterrupted):  # what stops it is on its way
            os.kill(rank, signal.SIGCONT)
        return event

    (tmp_path / "only_here.py").write_text("value = 5\n")
    pool = make(nodes=1)
    monkeypatch.syspath_prepend(tmp_path)
    asked = request(pool, "x = y", {"y": 1})
    rank = pool.pids[0]
    before = pool.lines.next
    monkeypatch.setattr(pool.lines, "next", goes_on)
    os.kill(rank, signal.SIGSTOP)
    run = pool.begin(asked, lambda _: None)
    pool.lines.send(Interrupt(run.number, (0,)))
    assert pool.finish(run, lambda _: None).done[0].interrupted
    assert values(pool, "__import__('only_here').value") == [5]


def test_who_ended_within_the_time_limit_is_not_out_of_time(make, stopped_after):
    pool = make(nodes=1, ranks_per_node=2)
    stopped_after(pool, 4, lambda event: isinstance(event, Output))
    body = "print('here', flush=True)\nimport time\ntime.sleep(0.2)"
    outcome = pool.run(request(pool, body, timeout=3.0), lambda _: None)
    assert not outcome.timed_out and sorted(outcome.done) == [0, 1]
