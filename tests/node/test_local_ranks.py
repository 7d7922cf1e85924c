"""Ranks wait while their client is behind; one that is to end does not, so that its end is heard."""

from __future__ import annotations

import asyncio
import time

from leaks import leaves_nothing
from node.drivers import driver
from waiting import until

from skyward_nb.protocol.commands import Kill, QueryStatus, UseEnvironment
from skyward_nb.protocol.events import AgentStatus, NotKilled, RankDone, RankLost
from skyward_nb.protocol.frames import event_frames, frame


class Visitor:
    """Asks an agent for its status while the client does not read."""

    def __init__(self, machine):
        self.connection = asyncio.run(machine.connect())
        self.frames = event_frames()

    def status(self) -> AgentStatus:
        self.connection.sendall(frame(QueryStatus()))
        while not (found := self.frames.feed(self.connection.recv(1 << 16))):
            """It comes in parts."""
        return found[0]


def stands_still(file) -> bool:
    """Whether what is written to a file again and again has stayed the same for a while."""
    before = file.exists() and file.read_text()
    time.sleep(0.5)
    return before and before == file.read_text()


def test_a_rank_that_was_held_back_and_ended_when_interrupted_is_not_killed(tmp_path):
    mark = tmp_path / "printed"
    with leaves_nothing(), driver(1) as hand:
        visitor = Visitor(hand.machine)
        run = hand.start(
            "from pathlib import Path\n"
            "for n in range(100):\n"
            "    print('x' * 100_000)\n"
            f"    Path({str(mark)!r}).write_text(f'{{n}}\\n')\n"
        )
        until(lambda: stands_still(mark))
        assert visitor.status().running == (0,)
        hand.interrupt(run)
        until(lambda: visitor.status().running == ())
        hand.link.send(Kill((0,), run))
        while not any(isinstance(each, NotKilled) for each in hand.events):
            assert hand.hear()
        (end,) = [each for each in hand.events if isinstance(each, RankDone)]
        assert end.interrupted
        assert not any(isinstance(each, RankLost) for each in hand.events)
        assert hand.ran("print('lives')")[0].failure is None
        visitor.connection.close()


def test_an_agent_says_which_environment_was_ordered_while_it_is_not_in_use_yet(tmp_path):
    with leaves_nothing(), driver(1) as hand:
        link = hand.link
        order = UseEnvironment(link.environment.python, str(tmp_path))
        for _ in range(2):  # while it is made ready, and after
            link.send(order)
            link.open(asyncio.run(hand.machine.connect()))
            while not link.is_greeted:
                link.read()
            assert link.environment == order
            order = UseEnvironment(order.python, "")
