"""The silence of machines counts while somebody listens."""

from __future__ import annotations

import re
import socket
import time

import pytest

from skyward_nb.pool.lines import Lines
from skyward_nb.pool.state_lock import StateLock
from skyward_nb.protocol.events import Phase
from skyward_nb.protocol.message_parts import Client

HOUR = 3600.0
CLIENT = Client(key="k", pid=1, host="here", since=0.0)


class Mute:
    """A machine whose agent takes the connection and says nothing."""

    name, nodes = "gpu1", (0,)

    def __init__(self):
        self.agents = []

    async def connect(self):
        ours, theirs = socket.socketpair()
        self.agents.append(theirs)
        return ours


@pytest.fixture
def lines():
    """The line to a mute machine, heard an hour ago."""
    machine = Mute()
    lines = Lines(CLIENT, heartbeat=60.0, patience=HOUR, lock=StateLock())
    lines.open_all([machine], 1, lambda _: None)
    lines.links[0].heard -= HOUR
    yield lines
    lines.close()
    for agent in machine.agents:
        agent.close()


def alarms(events):
    return [
        each.text for each in events if isinstance(each, Phase) and "has not answered" in each.text
    ]


def test_a_pause_before_somebody_listens_is_no_silence(lines):
    told = []
    for _ in lines.pump(told.append, time.monotonic() + 0.15):
        assert lines.links[0].is_open
    assert not alarms(told)


def test_an_hour_without_a_word_to_who_listens_is_told(lines):
    told = []
    for _ in lines.pump(told.append, time.monotonic() + 60):
        lines.links[0].heard -= HOUR
        if alarms(told):
            break
    assert re.match(
        r"gpu1 has not answered for 36\d\d s; trying to reach it again", alarms(told)[0]
    )
