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
    from skyward_nb.plugins.base import check_plugin, find_plugin
    from skyward_nb.words.errors import MissingDependency

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r'pip install "skyward-nb\[torch\]"'):
        check_plugin(find_plugin("torch"), "auto")
