"""Process groups of torch over machines that came in place of others: one pool for all tests."""

from __future__ import annotations

import pytest
from cloud.replaced import (
    keeping,
    machine_of,
    ran,
    taken_back,
    when_begun,
)
from later import needs
from pools import values

pytestmark = pytest.mark.timeout(300)
needs_torch = needs("torch")
ALL_REDUCED = """
import os, socket, torch, torch.distributed as dist
total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
backend, size, head = dist.get_backend(), dist.get_world_size(), os.environ["MASTER_ADDR"]
(backend, size, total.item(), socket.gethostname(), head)
"""


@pytest.fixture(scope="module")
def kept(shared_cloud, account):
    yield from keeping(shared_cloud, framework=("torch",))


@pytest.fixture
def cloud(shared_cloud):
    return shared_cloud


@needs_torch
@pytest.mark.extensive
@pytest.mark.parametrize("node", [0, 1])
def test_a_process_group_spans_the_machine_that_came_in_place_of_another(cloud, pool, node):
    before = values(pool, ALL_REDUCED)
    assert [each[:3] for each in before] == [("gloo", 2, 3.0)] * 2
    taken_back(cloud, pool, node)
    _, now = ran(pool, ALL_REDUCED)
    assert [each[:3] for each in now] == [("gloo", 2, 3.0)] * 2
    assert [each[3] for each in now] == [machine_of(cloud, pool, n).name for n in range(2)]
    assert now[node][3] != before[node][3] and now[1 - node][3] == before[1 - node][3]


@needs_torch
def test_ranks_that_wait_for_a_machine_that_is_taken_back_are_let_go(cloud, pool):
    old = machine_of(cloud, pool, 1)
    body = "import time\nif dist.get_rank():\n    print('begun')\n    time.sleep(120)\n"
    body = f"import torch.distributed as dist\n{body}{ALL_REDUCED}"
    outcome, _ = ran(pool, body, when_begun(old.reclaim))
    assert outcome.lost[1].how.startswith(f"ended with {old.instance} (EC2 says")
    assert outcome.done[0].interrupted or outcome.done[0].failure, outcome
    assert outcome.pool_lost[0].endswith("the next run gets another machine in its place")
    assert len(cloud.machines) == 1, "nobody needs one yet"
    _, now = ran(pool, ALL_REDUCED)
    assert [each[:3] for each in now] == [("gloo", 2, 3.0)] * 2
    machines = [machine_of(cloud, pool, n) for n in range(2)]
    assert [each[3] for each in now] == [each.name for each in machines]
    # They reach one another where only they are: at public ones, none reaches another.
    assert {each[4] for each in now} == {machines[0].private}
