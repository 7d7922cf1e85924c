"""NCCL between two ranks that share one GPU: each takes the other for one on another machine, by `NCCL_HOSTID`."""

from __future__ import annotations

import pytest
from gpus import on_gpus
from kernels import kernel
from later import needs

pytestmark = [pytest.mark.gpu, pytest.mark.torch, needs("torch")]

BEGIN = """%%sky_remote accelerator={name} ranks_per_node=2 backend=gloo framework=torch
import os, time, torch, torch.distributed as dist, skyward_nb as sky
from torch.nn.parallel import DistributedDataParallel as DDP
rank = sky.rank()
os.environ.update(NCCL_HOSTID=f"h{{rank}}", NCCL_SOCKET_IFNAME="lo")
dist.destroy_process_group()
dist.init_process_group("nccl")
torch.manual_seed(0)
net = DDP(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).cuda())
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
pair = dist.new_group([0, 1])
total, steps = torch.ones(1, device="cuda"), 0

def step():
    global steps
    x = torch.randn(16, 64, device="cuda", generator=torch.Generator("cuda").manual_seed(2 * steps + rank))
    loss = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
    return loss.item()

def alike():
    own = torch.cat([each.detach().flatten() for each in net.parameters()])
    both = [torch.empty_like(own) for _ in range(2)]
    dist.all_gather(both, own, group=pair)
    return dist.get_backend(), torch.equal(*both), bool(own.isfinite().all())

[step() for _ in range(3)][-1] > 0, alike()"""
GOOD = "[0-1] ('nccl', True, True)"
ENDS = [
    ("print('here')\nwhile True: step()", "press"),
    ("print('here')\nif rank: time.sleep(100)\ndist.all_reduce(total); total.item()", "press"),
    ("if rank: raise ValueError('no data')\ndist.all_reduce(total); total.item()", "ValueError"),
    ("if rank: time.sleep(100)\ndist.all_reduce(total); total.item()", "RunTimeout"),
]


@pytest.fixture(scope="module")
def notebook():
    on_gpus(1)
    with kernel() as running:
        yield running


@pytest.fixture
def ranks(notebook):
    """A notebook whose two ranks have trained a model by NCCL."""
    ran = notebook.run(BEGIN.format(name=on_gpus(1)), timeout=120)
    assert ran.result == f"[0-1] (True, {GOOD[6:]})", ran.traceback
    return notebook


@pytest.mark.parametrize(("code", "how"), ENDS, ids=["training", "waiting", "failed", "timeout"])
def test_models_and_groups_go_on(ranks, code, how):
    """The same DDP model, optimizer and group, after a run in which NCCL was cut."""
    limit = " timeout=3s" * (how == "RunTimeout")
    cell = f"%%sky_remote{limit}\n{code}"
    ran = ranks.stopped(cell) if how == "press" else ranks.run(cell)
    assert ran.error[0] == ("KeyboardInterrupt" if how == "press" else how), ran.traceback
    assert "started anew" not in ran.picture, ran.picture
    ran = ranks.run("%%sky_remote\nstep()\nalike()")
    assert ran.result == GOOD, ran.traceback
