"""PyTorch on real ranks: the group is formed before user code, and again with each generation."""

from __future__ import annotations

import importlib.util

import pytest
from conftest import gone_within, traces
from kernels import kernel

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed"),
]


@pytest.fixture(scope="module")
def notebook():
    before = traces()
    with kernel() as running:
        ran = running.run(
            "%%sky_remote nodes=2 framework=torch grace=1s\nimport torch.distributed as dist, torch, os"
        )
        assert ran.status == "ok", ran
        yield running
    assert not gone_within(5, before)


def test_the_group_is_formed_when_user_code_starts(notebook):
    ran = notebook.run(
        "%%sky_remote\ndist.is_initialized(), dist.get_backend(), dist.get_world_size()"
    )
    assert ran.result == "[0-1] (True, 'gloo', 2)"
    assert (
        notebook.run("%%sky_remote\ndist.get_rank() == int(os.environ['RANK'])").result
        == "[0-1] True"
    )


def test_collectives_work(notebook):
    ran = notebook.run(
        "%%sky_remote\nt = torch.tensor([dist.get_rank() + 1.0])\ndist.all_reduce(t)\nt.item()"
    )
    assert ran.result == "[0-1] 3.0"
    assert notebook.run("%%sky_remote\nimport skyward_nb as sky\nsky.barrier()").status == "ok"


def test_a_new_generation_has_a_new_group(notebook):
    assert notebook.run("%sky restart").status == "ok"
    ran = notebook.run(
        "%%sky_remote\nimport torch, torch.distributed as dist\nt = torch.ones(1)\ndist.all_reduce(t)\nt.item()"
    )
    assert ran.result == "[0-1] 2.0"


def test_a_notebook_model_trains_and_comes_home(notebook):
    notebook.run(
        "import torch\nfrom torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.l = nn.Linear(4, 1)\n"
        "    def forward(self, x): return self.l(x)\n"
        "xs, net = torch.randn(64, 4), Net()"
    )
    ran = notebook.run(
        "%%sky_remote out=nets\n"
        "from torch.nn.parallel import DistributedDataParallel as DDP\nimport skyward_nb as sky\n"
        "model = DDP(net)\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for x in sky.shard(xs).split(8):\n"
        "    opt.zero_grad(); (model(x) ** 2).mean().backward(); opt.step()\n"
        "model.module"
    )
    assert ran.status == "ok", ran.traceback
    check = "a, b = nets\nisinstance(a, Net), torch.equal(a.l.weight, b.l.weight), torch.equal(a.l.weight, net.l.weight)"
    assert notebook.run(check).result == "(True, True, False)"


def test_a_rank_that_fails_while_the_other_waits_in_a_collective_is_no_hang(notebook):
    ran = notebook.run(
        "%%sky_remote\nimport torch, torch.distributed as dist\n"
        "if dist.get_rank() == 1: raise RuntimeError('before the collective')\n"
        "dist.all_reduce(torch.ones(1))",
        timeout=30,
    )
    assert ran.error[0] == "RuntimeError"
    assert "before the collective" in ran.traceback
    ran = notebook.run(
        "%%sky_remote\nimport torch, torch.distributed as dist\nt = torch.ones(1)\ndist.all_reduce(t)\nt.item()"
    )
    assert ran.result == "[0-1] 2.0"


def test_nothing_listens_beyond_loopback(notebook):
    import psutil

    notebook.run("%%sky_remote out=pids\nimport os\nos.getpid()")
    pids = eval(notebook.run("list(pids)").result)
    for pid in pids:
        for connection in psutil.Process(pid).net_connections("inet"):
            if connection.status == psutil.CONN_LISTEN:
                assert connection.laddr.ip in ("127.0.0.1", "::1", "::ffff:127.0.0.1"), connection


def test_torch_missing_names_the_install(monkeypatch):
    from skyward_nb.plugins.base import check_installed
    from skyward_nb.words.commands import PluginUse
    from skyward_nb.words.errors import MissingDependency

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r'pip install "skyward-nb\[torch\]"'):
        check_installed(PluginUse("torch"))


@pytest.fixture(scope="module")
def spread(notebook):
    ran = notebook.run(
        "%%sky_remote\nimport torch\nfrom torch.distributed.device_mesh import init_device_mesh\n"
        "from torch.distributed.tensor import Shard, distribute_tensor\nimport threading\n"
        "mesh = init_device_mesh('cpu', (2,))\nr = dist.get_rank()\n"
        "d = distribute_tensor(torch.arange(6.0), mesh, [Shard(0)])"
    )
    assert ran.status == "ok", ran.traceback
    return notebook


@pytest.mark.parametrize("options", ["", "gather=head", "pull=d"])
def test_sharded_tensors_come_home_as_whole_ones(spread, options):
    assert (
        spread.run(f"%%sky_remote out=got {options}\n[d, {{'twice': d * 2, 'same': d}}]").error
        is None
    )
    first = "got" if "head" in options else "got[1]"
    code = f"type({first}[0]).__name__, {first}[0].tolist()[-1], {first}[1]['twice'].tolist()[-1]"
    assert spread.run(code).result == "('Tensor', 5.0, 10.0)"
    assert spread.run(f"{first}[0] is {first}[1]['same']").result == "True"


DIFFERENT = {
    "d if r == 0 else 5": "rank 1 sent home nothing of it",
    "[d, d * 2] if r == 0 else [d * 2]": "ranks have different parts",
    "[d, threading.Lock()] if r == 0 else [d]": "",
    "[d, threading.Lock()]": "_thread.lock",
}


@pytest.mark.parametrize("value", DIFFERENT)
@pytest.mark.parametrize("options", ["", "gather=head"])
def test_parts_that_differ_are_an_error_and_no_hang(spread, value, options):
    ran = spread.run(f"%%sky_remote {options}\n{value}", timeout=20)
    if options and "Lock" in value and "if" in value:
        assert ran.error is not None
    else:
        assert ran.error[0] == "PayloadError"
        assert DIFFERENT[value] in ran.traceback
    assert spread.run("%%sky_remote\nr").result == "[0] 0\n[1] 1", "the pool is as it was"


def test_an_exception_that_holds_a_sharded_tensor(spread):
    ran = spread.run("%%sky_remote\nif r == 0: raise ValueError('bad', d)", timeout=20)
    assert ran.error[0] == "ValueError"
    assert spread.run("%%sky_remote\nr").result == "[0] 0\n[1] 1"


def test_a_sharded_tensor_on_some_of_its_ranks(spread):
    ran = spread.run("%%sky_remote ranks=0\nd", timeout=20)
    assert ran.error[0] == "PayloadError"
    assert "it is spread over 2 ranks, and this cell runs on 0 alone" in ran.traceback


def test_the_state_of_a_sharded_model(spread):
    ran = spread.run(
        "%%sky_remote out=state gather=head\nfrom torch.distributed.fsdp import fully_shard\n"
        "torch.manual_seed(0)\nm = torch.nn.Linear(4, 4)\nfully_shard(m, mesh=mesh)\nm.state_dict()"
    )
    assert ran.error is None, ran.traceback
    assert spread.run("state['weight'].shape, type(state['weight']).__name__").result == (
        "(torch.Size([4, 4]), 'Tensor')"
    )
    ran = spread.run("%%sky_remote\nm.state_dict() if r == 0 else None", timeout=20)
    assert "rank 1 sent home nothing of it" in ran.traceback


@pytest.mark.gpu
def test_nccl_is_aborted_from_another_thread():
    """A collective of NCCL that waits on the device raises, or ends, once its group is cut."""
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip("NCCL wants a GPU for each of two ranks")
    from node.drivers import driver

    with driver(2, "torch") as made:
        run = made.start(
            "import torch, torch.distributed as dist\nprint('here')\n"
            "if dist.get_rank(): dist.all_reduce(torch.ones(1, device='cuda')).item()"
        )
        made.said(run, "here")
        made.interrupt(run)
        assert any(each.cut for each in made.cut(run))
        assert made.ended(run)[1].interrupted
        made.reform()
        assert not any(
            end.failure for end in made.ran("dist.all_reduce(torch.ones(1, device='cuda'))")
        )


TUTORIAL = """%%sky_remote
import os
import torch.distributed as dist
import torch.nn as nn
import torch.optim as optim
from torch.nn.parallel import DistributedDataParallel as DDP

def setup(rank, world_size):
    os.environ['MASTER_ADDR'] = 'localhost'
    os.environ['MASTER_PORT'] = '12355'
    dist.init_process_group("gloo", rank=rank, world_size=world_size)

def cleanup():
    dist.destroy_process_group()

class ToyModel(nn.Module):
    def __init__(self):
        super(ToyModel, self).__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))

def demo_basic(rank, world_size):
    print(f"Running basic DDP example on rank {rank}.")
    setup(rank, world_size)
    model = ToyModel()
    ddp_model = DDP(model)
    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.001)
    optimizer.zero_grad()
    outputs = ddp_model(torch.randn(20, 10))
    labels = torch.randn(20, 5)
    loss_fn(outputs, labels).backward()
    optimizer.step()
    cleanup()
    return [p.sum().item() for p in ddp_model.parameters()]

import torch
demo_basic(int(os.environ['RANK']), int(os.environ['WORLD_SIZE']))
"""


def test_the_ddp_tutorial_runs_unchanged_and_again(notebook):
    """https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html, its basic use case."""
    notebook.run("%sky restart")
    for _ in range(3):
        ran = notebook.run(f"{TUTORIAL}")
        assert ran.status == "ok", ran.traceback
        assert ran.result.startswith("[0-1]"), "gradients were averaged"
    ran = notebook.run("%%sky_remote\nimport skyward_nb as sky\nsky.barrier()")
    assert "init_process_group() makes it anew" in ran.error[1]
    notebook.run("%sky restart")
    assert notebook.run("%%sky_remote\nsky.barrier(); dist.is_initialized()").status == "error"
    ran = notebook.run("%%sky_remote\nimport torch.distributed as dist\ndist.is_initialized()")
    assert ran.result == "[0-1] True"


def test_code_that_forms_the_group_gets_what_it_would_under_torchrun(notebook):
    notebook.run("%sky restart")
    ran = notebook.run(
        "%%sky_remote\nimport torch.distributed as dist, os\n"
        "from datetime import timedelta\nfrom torch.distributed import init_process_group\n"
        "seen = []\n"
        "def attempt(*args, **more):\n"
        "    try:\n        init_process_group(*args, **more)\n        seen.append(dist.get_backend())\n"
        "    except ValueError as error:\n        seen.append(str(error)[:40])\n"
        "attempt(rank=7)\n"
        "attempt()\n"
        "attempt()\n"
        "dist.destroy_process_group()\n"
        "attempt('gloo', init_method='env://', timeout=timedelta(seconds=50))\n"
        "dist.destroy_process_group()\n"
        "attempt('cpu:gloo', world_size=2)\n"
        "import torch; t = torch.ones(1); dist.all_reduce(t)\n"
        "seen, t.item()"
    )
    assert ran.status == "ok", ran.traceback
    refused, first, second, again, third = eval(ran.result.removeprefix("[0-1] "))[0]
    assert refused.startswith("init_process_group(rank=7")
    assert second.startswith("trying to initialize the default process")
    assert (first, again) == ("gloo", "gloo")
    assert third.startswith("cpu:gloo")
    assert ran.result.endswith(", 2.0)")


def test_a_first_call_may_ask_for_another_kind(notebook):
    notebook.run("%sky restart")
    ran = notebook.run(
        "%%sky_remote\nimport torch.distributed as dist, torch\nfrom datetime import timedelta\n"
        "dist.init_process_group('gloo', timeout=timedelta(seconds=1))\n"
        "if dist.get_rank() == 0: dist.all_reduce(torch.ones(1))\n"
        "else: import time; time.sleep(3)",
        timeout=60,
    )
    assert ran.error[0] == "RuntimeError", "its own time limit holds"
    ran = notebook.run("%%sky_remote\nt = torch.ones(1); dist.all_reduce(t); t.item()")
    assert ran.result == "[0-1] 2.0", ran.traceback


def test_the_time_limit_of_the_line(notebook):
    ran = notebook.run(
        "%%sky_remote pool=brief nodes=2 framework=torch collective_timeout=1s grace=5s\n"
        "import time, torch, torch.distributed as dist\n"
        "if dist.get_rank() == 0: dist.all_reduce(torch.ones(1))\n"
        "else: time.sleep(4)",
        timeout=60,
    )
    assert ran.error[0] == "RuntimeError", ran.traceback
    assert "Timed out" in ran.traceback
    notebook.run("%sky down pool=brief")
