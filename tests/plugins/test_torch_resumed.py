"""Trainings of torch that go on from a checkpoint as if nothing had been."""

from __future__ import annotations

import os
import signal

import pytest
from later import needs
from pools import request, values, why_failed
from waiting import until

pytestmark = [
    pytest.mark.torch,
    needs("torch"),
]

REPLICAS = """
import torch, skyward_nb as sky
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 1))
model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
made = 0
def step():
    global made
    made += 1
    torch.manual_seed(100 * made + sky.rank())
    optimizer.zero_grad()
    loss = model(torch.randn(16, 4)).square().mean()
    loss.backward()
    optimizer.step()
    schedule.step()
    return loss.item()
def standing():
    return made, schedule.get_last_lr(), [p.detach().tolist() for p in net.parameters()]
[step() for _ in range(3)]
"""

SHARDS = """
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
sharded = nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 1))
for part in (sharded[0], sharded[2], sharded):
    fully_shard(part)
optimizer = torch.optim.AdamW(sharded.parameters(), lr=0.01)
def step():
    optimizer.zero_grad()
    sharded(torch.ones(2, 4)).sum().backward()
    optimizer.step()
def standing():
    of_optimizer = [state['exp_avg'].full_tensor().tolist() for state in optimizer.state.values()]
    return of_optimizer, [p.full_tensor().tolist() for p in sharded.parameters()]
"""


SCALER = """
class Scaler:
    def state_dict(self): return {'scale': 2.0}
    def load_state_dict(self, state): pass
scaler = Scaler()
"""


def ran(pool, body):
    pool.look(lambda _: None)
    outcome = pool.run(request(pool, body), lambda _: None)
    assert not outcome.failed, why_failed(outcome)
    return outcome


def killed(pool, rank):
    os.kill(pool.pids[rank], signal.SIGKILL)
    until(lambda: pool.look(lambda _: None))


def test_replicas_go_on_in_the_same_steps(make, tmp_path):
    pool = make(framework=("torch",), checkpoint=str(tmp_path / "kept"))
    ran(pool, REPLICAS)
    values(pool, "sky.checkpoint()")
    before = values(pool, "standing()")
    after = values(pool, "[step() for _ in range(3)], standing()")
    killed(pool, 1)
    ran(pool, "again = standing()")
    assert values(pool, "again") == before
    assert values(pool, "[step() for _ in range(3)], standing()") == after
    assert values(pool, "model.module is net, sky.instance_info().generation") == [(True, 2)] * 2


def test_shards_are_taken_by_what_is_made_again(make, tmp_path):
    place = str(tmp_path / "kept")
    first = make(framework=("torch",), checkpoint=place)
    # The last line is gathered, as it is then; a later checkpoint has what it is by then.
    net = "net = sky.parallelize(nn.Linear(4, 2), mesh=sky.mesh('fsdp:2'))\nnet"
    ran(first, f"import skyward_nb as sky\n{SHARDS}\nstep()\n{net}")
    before = values(first, f"{SCALER}step()\nsky.checkpoint()\nstanding()")
    after = values(first, "step()\nstanding()")
    first.close()
    second = make(framework=("torch",), checkpoint=place, resume=True)
    (told,) = ran(second, "1").pool_lost
    assert told.endswith(
        "of net, optimizer, part, sharded the state alone); make these again, and give them to sky.rejoin, a model "
        "before its optimizer"
    )
    (end, _) = second.run(
        request(
            second, SHARDS.replace("9", "7") + "sky.rejoin(sharded, optimizer)", on_error="wait"
        ),
        lambda _: None,
    ).failed
    assert "is not as it was in the checkpoint: make it with the same shapes" in end.failure.message
    (end, _) = second.run(
        request(second, f"{SHARDS}{SCALER}sky.rejoin(sharded, optimizer, scaler)", on_error="wait"),
        lambda _: None,
    ).failed
    assert "the checkpoint has no state of Scaler beside that of sharded" in end.failure.message
    taken = SHARDS + "\nsky.rejoin(sharded, optimizer), sky.rejoin(sharded, optimizer)"
    assert values(second, taken) == [(True, False)] * 2
    assert values(second, "standing()") == before
    assert values(second, "step()\nstanding()") == after
