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
