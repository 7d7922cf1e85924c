"""Where ranks are when the time of their run is over, though somebody is held up just then."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from pools import request
from waiting import until

from skyward_nb.pool import registry, run_state
from skyward_nb.protocol.commands import Inspect

IS_FOR_POOLS = True


@pytest.fixture
def time_over(make, monkeypatch):
    """Runs a cell whose time is over; who is named is stopped for so long as ranks are asked where they are."""

    def run(who, seconds):
        pool = make(heartbeat=0.1)
        pid = {
            "agent": until(lambda: registry.condition(pool.entry)).pid,
            "rank": pool.pids[1],
        }[who]
        send, stopped = pool.lines.send, []

        def held(command):
            if isinstance(command, Inspect) and not stopped:
                stopped.append(command)
                os.kill(pid, signal.SIGSTOP)
                threading.Timer(seconds, os.kill, (pid, signal.SIGCONT)).start()
            send(command)

        monkeypatch.setattr(pool.lines, "send", held)
        outcome = pool.run(
            request(pool, "import time\ntime.sleep(60)", timeout=0.3), lambda _: None
        )
        assert stopped
        return outcome

    return run


@pytest.mark.parametrize(("who", "seconds"), [("agent", 0.8), ("rank", 1.4)])
def test_all_ranks_say_where_they_are(who, seconds, time_over, monkeypatch):
    monkeypatch.setattr(run_state, "_LOOK", 60.0)
    outcome = time_over(who, seconds)
    assert outcome.timed_out
    assert {rank for rank, text in outcome.stacks.items() if text} == {0, 1}
