"""Pools that are alive and not this notebook's, in words."""

import os
import socket

import psutil
import pytest

from skyward_nb.pool.registry import PoolEntry
from skyward_nb.protocol.events import AgentStatus, RunBegan
from skyward_nb.protocol.message_parts import Client, RunCard
from skyward_nb.reports.found_pools import FoundPool
from skyward_nb.words.spec import PoolSpec

HERE = Client(
    key="", pid=os.getpid(), host=socket.gethostname(), since=psutil.Process().create_time()
)
ENDED = RunBegan(7, 1, (0,), RunCard(number=4))


@pytest.mark.parametrize(
    ("client", "unseen", "says"),
    [
        (HERE, None, "idle"),
        (HERE, ENDED, "In[4] has ended"),
        (None, ENDED, "In[4] has ended, and its end may not have been shown yet"),
    ],
)
def test_the_end_of_a_run_is_missed_only_where_nobody_conducts_its_pool(client, unseen, says):
    entry = PoolEntry(pool_id="default-1", spec=PoolSpec(), notebook="", started=0.0)
    status = AgentStatus(pid=1, client=client, unseen=unseen)
    assert FoundPool(entry, status).doing() == says
