"""A debugger that does not start in a rank: the rank goes on without it, says why, and tries no more."""

from __future__ import annotations

import socket
import threading

import pytest

from skyward_nb.compat import debugpy_private
from skyward_nb.node import rank_debugger
from skyward_nb.node.rank_debugger import READY, RankDebugger
from skyward_nb.protocol.commands import DebugPlan
from skyward_nb.protocol.events import DebugMessage


class Debugpy:
    """One that waits, once connected, to be told that all is set up: without a limit, as the real one."""

    def __init__(self):
        self.goes_on = threading.Event()
        self.tries = 0

    def configure(self, **_options):
        pass

    def connect(self, address, access_token):
        self.tries += 1
        with socket.create_connection(address):
            assert self.goes_on.wait(60), "the rank hangs"


@pytest.fixture
def debugpy(monkeypatch):
    made = Debugpy()
    made.is_given_up = threading.Event()
    monkeypatch.setattr(rank_debugger, "_debugpy", lambda: made)
    monkeypatch.setattr(debugpy_private, "end_wait", made.goes_on.set)
    monkeypatch.setattr(debugpy_private, "give_up", made.is_given_up.set)
    return made


FAULTS = {
    "other_users": OSError("no table of connections"),
    "_DebugLine._greeted": RuntimeError("debugpy did not answer pydevdAuthorize"),
}


@pytest.mark.parametrize("part", FAULTS)
def test_a_failed_start_does_not_hang_the_rank(debugpy, monkeypatch, capsys, part):
    def fails(*_args):
        raise FAULTS[part]

    monkeypatch.setattr(f"skyward_nb.node.rank_debugger.{part}", fails)
    said, ran = [], []
    debugger = RankDebugger(3, said.append)
    for run in (1, 2):
        with debugger.watching(run, DebugPlan((), True)):
            ran.append(run)
    assert ran == [1, 2]
    assert said == [DebugMessage(run, 3, READY) for run in ran]
    assert debugpy.is_given_up.is_set()
    assert debugpy.tries == 1, "it cannot be begun twice"
    words = capsys.readouterr().err
    assert (
        words.count(str(FAULTS[part])) == words.count("rank 3") == words.count("%sky restart") == 2
    )
