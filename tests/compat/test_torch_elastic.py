"""Restarted workers of torch's elastic agent: all nodes begin an attempt together, in an empty store."""

from __future__ import annotations

import datetime
import threading

import pytest
from later import Later, needs

from skyward_nb.compat.torch_elastic_private import StaticAttempts

pytestmark = [pytest.mark.torch, needs("torch")]
dist = Later("torch.distributed")


class Nodes:
    """Two agents of one store; `begin` has both begin an attempt at once."""

    def __init__(self) -> None:
        soon = datetime.timedelta(seconds=20)
        self.workers = dist.TCPStore("127.0.0.1", 0, 1, True, soon, wait_for_workers=False)
        self.agents = dist.PrefixStore("run", self.workers)
        self.attempts = [StaticAttempts(), StaticAttempts()]

    def begin_one(self, node: int, timeout: float = 20.0) -> None:
        self.attempts[node].begin(self.agents, "run/", node, 2, timeout)

    def begin(self) -> None:
        one = threading.Thread(target=self.begin_one, args=[1])
        one.start()
        self.begin_one(0)
        one.join()


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


def test_an_attempt_finds_nothing_of_the_workers_before(nodes):
    for number in range(3):
        nodes.begin()
        assert not nodes.workers.check(["default_pg/0//rank0"])
        assert nodes.agents.check(["kept"]) == (number > 0)
        nodes.workers.set("default_pg/0//rank0", b"an address")
        nodes.agents.set("kept", b"of the agents")
    assert [each.others_wait() for each in nodes.attempts] == [0, 0]


def test_a_node_whose_workers_live_is_told_that_the_other_one_waits(nodes):
    nodes.begin()
    other = threading.Thread(target=nodes.begin_one, args=[1])
    other.start()
    while not nodes.attempts[0].others_wait():
        assert other.is_alive()
    nodes.begin_one(0)
    other.join()


def test_nobody_waits_for_a_node_whose_workers_have_ended_well_or_that_does_not_come(nodes):
    nodes.begin()
    nodes.begin_one(0, timeout=0.0)
    nodes.workers.set("of workers", b"")
    nodes.agents.set("torchelastic/agent/terminal_state/num_members", b"1")
    nodes.begin_one(0)
    assert nodes.workers.check(["of workers"])


def test_what_pytorch_calls_an_agent_that_has_ended():
    from torch.distributed.elastic.agent.server import api
    from torch.distributed.elastic.utils import store

    from skyward_nb.compat import torch_elastic_private

    key = f"{api._TERMINAL_STATE_SYNC_ID}{store._NUM_MEMBERS}"
    assert key == torch_elastic_private._SOMEBODY_ENDED
