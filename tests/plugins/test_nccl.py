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


def test_weights_of_a_step_without_its_gradients_go_to_no_rank(ranks):
    """A GPU makes the step of a rank whose collective was cut; all go on from a rank without one."""
    code = "for _ in range(5): step()\nif rank: raise ValueError('no data')\nstep()"
    ran = ranks.run(f"%%sky_remote\n{code}")
    assert "are as on rank 1" in ran.picture, ran.picture
    alone = """%%sky_remote
torch.manual_seed(0)
one = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).cuda()
made = torch.optim.SGD(one.parameters(), lr=0.01)
for number in range(8):
    made.zero_grad()
    for other in range(2):
        x = torch.randn(16, 64, device="cuda", generator=torch.Generator("cuda").manual_seed(2 * number + other))
        ((one(x) - x.sum(1, keepdim=True)).pow(2).mean() / 2).backward()
    made.step()
own, other = (torch.cat([each.detach().flatten() for each in m.parameters()]) for m in (net, one))
bool((own - other).abs().max() < 1e-4)"""
    assert ranks.run(alone).result == "[0-1] True"


def test_a_rank_that_lives_says_what_its_state_is_worth(ranks):
    """The step that it had called is in what it keeps when another rank dies."""
    dies = "import signal\nif rank: os.kill(os.getpid(), signal.SIGKILL)\nwhile True: step()"
    ran = ranks.run(f"%%sky_remote\n{dies}", timeout=90)
    assert ran.error[0] == "RankDied", ran.traceback
    kept = "rank 0 kept the state of its models (the GPU may have made its last optimizer step with a part"
    assert kept in ran.picture, ran.picture
