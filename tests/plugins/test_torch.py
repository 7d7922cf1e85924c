"""PyTorch on real ranks: the group is formed before user code, and again with each generation."""

from __future__ import annotations

import json
import os
import re
import threading

import pytest
from gpus import on_gpus
from kernels import kernel, ready
from later import needs
from other_user import CONNECTS, as_another_user, needs_another_user, other_user_runs
from plugins.alone import fails_alone
from tiers import few
from waiting import until

from skyward_nb.words.info import InstanceInfo

pytestmark = [
    pytest.mark.torch,
    needs("torch"),
]


@pytest.fixture(scope="module")
def notebook():
    with ready(
        "%%sky_remote nodes=2 framework=torch grace=20s\nimport torch.distributed as dist, torch, os"
    ) as running:
        yield running


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


def test_hooks_of_the_notebook_and_of_ranks_do_not_take_each_others_place(notebook):
    """torch numbers those of each process from 0, and one that travels keeps its number."""
    notebook.run(
        "import torch\nhooked, called = torch.nn.Linear(1, 1), []\n"
        "for _ in range(9): hooked.register_forward_hook(lambda *_: called.append('notebook'))"
    )
    ran = notebook.run(
        "%%sky_remote\n"
        "for _ in range(9): hooked.register_forward_hook(lambda *_: called.append('rank'))\n"
        "hooked(torch.ones(1)); called.count('notebook'), called.count('rank')"
    )
    assert ran.result == "[0-1] (9, 9)"


def test_a_function_that_is_compiled_is_compiled_on_the_ranks_once(notebook):
    notebook.run(
        "import torch\ndef backend(graph, inputs):\n    compiled.append(len(inputs))\n    return graph.forward\n"
        "compiled = []\n@torch.compile(backend=backend)\ndef plus(x): return x + 1"
    )
    for _ in range(2):
        ran = notebook.run("%%sky_remote\nplus(torch.ones(2)).sum().item(), compiled")
        assert ran.result == "[0-1] (4.0, [1])", ran.traceback


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
    listening = 0
    for pid in pids:
        for connection in psutil.Process(pid).net_connections("inet"):
            if connection.status == psutil.CONN_LISTEN:
                listening += 1
                assert connection.laddr.ip in ("127.0.0.1", "::1", "::ffff:127.0.0.1"), connection
    assert listening >= 2, "gloo does, on each rank"


OPENS = """
import os, sys
for flags in (os.O_RDONLY, os.O_RDWR):
    try: os.close(os.open(sys.argv[1], flags))
    except OSError as error: print(type(error).__name__)
    else: print("opened")
"""
COMES_FIRST = """
import socket, sys
lines = [socket.create_connection(("127.0.0.1", int(port)), 5) for port in sys.argv[1:] for _ in range(8)]
for number, line in enumerate(lines):
    line.sendall((number % 8).to_bytes(8, "little"))
print("connected", flush=True)
for line in lines:
    line.settimeout(200)
    try: cut = not line.recv(1)
    except ConnectionError: cut = True
    print("cut" if cut else "heard", flush=True)
"""
"""Connects to each port before ranks do, and says numbers as gloo counts its pairs."""


@needs_another_user
def test_another_user_of_this_machine_takes_part_in_nothing(notebook):
    import psutil

    told = "os.getpid(), os.environ['MASTER_PORT'], os.environ['SKYWARD_POOL'], sky.instance_info().generation"
    notebook.run(f"%%sky_remote out=told\nimport skyward_nb as sky\n{told}")
    found = eval(notebook.run("list(told)").result)
    _, port, folder, generation = found[0]
    assert as_another_user(CONNECTS, "127.0.0.1", port, "x").strip() == "closed", "nobody listens"
    keys = f"{folder}/store-{generation}/keys"
    assert as_another_user(OPENS, keys).split() == ["PermissionError"] * 2
    assert as_another_user(OPENS, keys, uid=os.getuid()).split() == ["opened"] * 2
    ports = [
        each.laddr.port
        for pid, *_ in found
        for each in psutil.Process(pid).net_connections("inet")
        if each.status == psutil.CONN_LISTEN
    ]
    assert ports, "gloo's, of each rank"
    with other_user_runs(COMES_FIRST, *ports) as attack:
        assert [attack.stdout.readline() for _ in range(2)] == ["begins\n", "connected\n"]
        made = "both = dist.new_group([0, 1])\nt = torch.ones(1)\ndist.all_reduce(t, group=both)\nt.item()"
        # A group in which such a process stood in for a rank fails; the next one is of ranks alone.
        until(lambda: notebook.run(f"%%sky_remote\n{made}").result == "[0-1] 2.0")
        # Each is cut at the next look after gloo has taken it.
        said = []
        reads = threading.Thread(target=lambda: said.extend(attack.stdout))
        reads.start()
        until(lambda: notebook.run(f"%%sky_remote\n{made}").status and not reads.is_alive())
        assert said == ["cut\n"] * 8 * len(ports)


# ── places ──────────────────────────────────────────────────────────────────────────────

FIELDS = (
    "{name: getattr(sky.instance_info(), name) for name in ('node', 'total_nodes', 'worker', "
    "'workers_per_node', 'rank', 'world_size', 'local_rank', 'is_head', 'head_addr', 'head_port', "
    "'accelerators', 'accelerator', 'job_id', 'generation', 'mesh')}"
    " | {'peers': [(peer.node, peer.address) for peer in sky.instance_info().peers],"
    " 'port': int(os.environ['MASTER_PORT']), 'pool': json.loads(os.environ['COMPUTE_POOL'])['generation'],"
    " 'restarts': int(os.environ['TORCHELASTIC_RESTART_COUNT'])}"
)


def check_places(places, generation):
    for rank, place in enumerate(places):
        port, job = place.pop("port"), place.pop("job_id")
        assert port == place.pop("head_port") > 0
        assert job
        assert place.pop("pool") == place.pop("restarts") + 1 == generation
        assert place == {
            "node": rank, "total_nodes": 2, "worker": 0, "workers_per_node": 1, "rank": rank,
            "world_size": 2, "local_rank": 0, "is_head": rank == 0, "head_addr": "127.0.0.1",
            "accelerators": 0, "accelerator": None, "generation": generation, "mesh": [],
            "peers": [[0, "127.0.0.1"], [1, "127.0.0.1"]],
        }  # fmt: skip
        yield port, job


def test_the_place_is_true_in_every_field_also_of_a_later_generation(notebook, tmp_path):
    def begin():
        ran = notebook.run(
            "%%sky_remote\nimport json, os, time, torch, torch.distributed as dist\n"
            "import skyward_nb as sky\nsky.instance_info().generation"
        )
        return int(ran.result.removeprefix("[0-1] "))

    def places(generation):
        ran = notebook.run(f"%%sky_remote out=told\njson.dumps({FIELDS})")
        assert ran.status == "ok", ran.traceback
        told = [json.loads(text) for text in eval(notebook.run("list(told)").result)]
        (found,) = set(check_places(told, generation))
        return found

    first = begin()
    port, job = places(first)
    assert notebook.run("%sky restart").status == "ok"
    assert begin() == first + 1
    later, same = places(first + 1)
    assert same == job
    assert later != port
    # The same processes in a new generation: one rank fails while the other waits for it.
    ran = notebook.run(f"%%sky_remote\n{fails_alone(1, tmp_path / 'begun')}")
    assert ran.error[0] == "ValueError"
    last, same = places(first + 2)
    assert same == job
    assert last not in (port, later)


def test_torch_missing_names_the_install(monkeypatch):
    from skyward_nb.plugins.plugin_table import check_installed
    from skyward_nb.protocol.commands import PluginUse
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


@pytest.mark.parametrize("options", few(1, ["", "gather=head", "pull=d"]))
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


@pytest.mark.parametrize("value", few(2, DIFFERENT))
@pytest.mark.parametrize("options", few(1, ["out=got", "gather=head"]))
def test_parts_that_differ_are_an_error_and_no_hang(spread, value, options):
    ran = spread.run(f"%%sky_remote {options}\n{value}", timeout=60)
    if "head" in options and "Lock" in value and "if" in value:
        assert ran.error is not None
    else:
        assert ran.error[0] == "PayloadError"
        assert DIFFERENT[value] in ran.traceback
    assert spread.run("%%sky_remote\nr").result == "[0] 0\n[1] 1", "the pool is as it was"


def test_an_exception_that_holds_a_sharded_tensor(spread):
    ran = spread.run("%%sky_remote\nif r == 0: raise ValueError('bad', d)", timeout=60)
    assert ran.error[0] == "ValueError"
    assert spread.run("%%sky_remote\nr").result == "[0] 0\n[1] 1"


def test_a_sharded_tensor_is_not_shared_out(spread):
    ran = spread.run("%%sky_remote\nimport skyward_nb as sky\nsky.shard(d)")
    assert ran.error[0] == "ValueError"
    assert "to_local" in ran.traceback


def test_a_sharded_tensor_on_some_of_its_ranks(spread):
    ran = spread.run("%%sky_remote ranks=0\nd", timeout=60)
    assert "(stays on the ranks)" in ran.result
    ran = spread.run("%%sky_remote ranks=0 out=got\nd", timeout=60)
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
    ran = spread.run("%%sky_remote\nm.state_dict() if r == 0 else None", timeout=60)
    assert "rank 1 sent home nothing of it" in ran.picture


# ── user code that forms its own ────────────────────────────────────────────────────────

TUTORIAL = """%%sky_remote{options}
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.optim as optim

from torch.nn.parallel import DistributedDataParallel as DDP

def setup(rank, world_size):
    os.environ['MASTER_ADDR'] = 'localhost'
    os.environ['MASTER_PORT'] = '12355'

    # initialize the process group
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
    print(f"Running basic DDP example on rank {{rank}}.")
    setup(rank, world_size)

    # create model and move it to GPU with id rank
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
    print(f"Finished running basic DDP example on rank {{rank}}.")
    return next(model.parameters()).sum().item()

demo_basic(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
"""


def meets(running, pool="", kind="gloo"):
    """Whether all ranks of the group that is there meet."""
    ran = running.run(
        f"%%sky_remote{pool}\nimport torch, torch.distributed as dist\n"
        "t = torch.ones(1)\ndist.all_reduce(t)\nt.item(), dist.get_backend()"
    )
    return ran.result == f"[0-1] (2.0, {kind!r})"


def test_the_ddp_tutorial_runs_as_it_is_and_again(notebook):
    for _ in range(2):
        for _ in range(20):
            ran = notebook.run(TUTORIAL.format(options=" out=sums"), timeout=60)
            assert ran.status == "ok", ran.traceback
            assert ran.picture.count("Finished running") == 2
            assert notebook.run("len(set(sums))").result == "1", "gradients are averaged"
        assert notebook.run("%sky restart").status == "ok"
        assert meets(notebook)


def test_a_ddp_model_holds_its_group_last(notebook):
    """Else torch hangs now and then when the model goes after its group was destroyed."""
    ran = notebook.run(
        "%%sky_remote\nimport torch\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"
        "list(DDP(torch.nn.Linear(1, 1)).__dict__)[-1]"
    )
    assert ran.result == "[0-1] 'process_group'"


def test_a_ddp_model_as_the_last_expression_is_shown_and_stays(notebook):
    ran = notebook.run(
        "%%sky_remote\nimport torch\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"
        "DDP(torch.nn.Linear(1, 1))"
    )
    assert ran.error is None
    assert ran.result.startswith("[0-1] DistributedDataParallel(\n        (module): Linear(")
    assert ran.result.endswith("(stays on the ranks)")
    assert "stays on the ranks: it belongs to their process group" in ran.picture


@pytest.fixture
def fresh(notebook):
    """The notebook with a group that no user code has asked for."""
    assert notebook.run("%sky restart").status == "ok"
    ran = notebook.run(
        "%%sky_remote\nimport os, torch, torch.distributed as dist\nfrom datetime import timedelta\n"
        "r, own = dist.get_rank(), dist.group.WORLD"
    )
    assert ran.status == "ok"
    return notebook


TAKES_IT = [
    "",
    "'gloo'",
    "dist.Backend.GLOO, rank=r, world_size=2",
    "init_method='env://'",
    "'GLOO', 'tcp://127.0.0.1:23456', rank=r, world_size=2",
    "'gloo', init_method='file:///nowhere/at/all', world_size=2, rank=r",
    "timeout=timedelta(minutes=30)",
    "device_id=torch.device('cpu')",
]


@pytest.mark.parametrize("asked", few(3, TAKES_IT))
def test_the_first_call_takes_the_group_that_is_there_and_the_second_is_torchs_error(fresh, asked):
    ran = fresh.run(f"%%sky_remote\ndist.init_process_group({asked})\ndist.group.WORLD is own")
    assert ran.result == "[0-1] True", ran.traceback
    ran = fresh.run(f"%%sky_remote\ndist.init_process_group({asked})")
    assert ran.error[:2] == (
        "ValueError",
        "trying to initialize the default process group twice!",
    ), ran.traceback
    assert meets(fresh)


FORMS_ANOTHER = {
    "'cpu:gloo'": "gloo",
    "'cpu:gloo,cuda:gloo'": "gloo",
    "timeout=timedelta(seconds=7)": "gloo",
    "'gloo', init_method='tcp://127.0.0.1:23456', rank=r, world_size=2, timeout=timedelta(7)": "gloo",
    "'fake'": "fake",
}


@pytest.mark.parametrize("asked", few(2, FORMS_ANOTHER))
def test_what_is_of_another_kind_is_formed_in_its_stead(fresh, asked):
    import psutil

    pids = fresh.run("%%sky_remote out=pids\nos.getpid()") and eval(fresh.run("list(pids)").result)
    ran = fresh.run(
        f"%%sky_remote\nd = dict(rank=r, world_size=2) if {asked!r} == \"'fake'\" else {{}}\n"
        f"dist.init_process_group({asked}, **d)\ndist.group.WORLD is own"
    )
    if "fake" in asked:
        assert ran.error is None
        return
    assert ran.result == "[0-1] False", ran.traceback
    backend = "gloo" if "'" not in asked or "tcp" in asked else eval(asked)
    assert meets(fresh, kind=backend)
    for pid in pids:
        for each in psutil.Process(pid).net_connections("inet"):
            if each.status == psutil.CONN_LISTEN:
                assert each.laddr.ip in ("127.0.0.1", "::1", "::ffff:127.0.0.1"), each
    assert "twice" in fresh.run(f"%%sky_remote\ndist.init_process_group({asked})").traceback


def test_a_place_that_is_none_of_the_pools(fresh):
    body = "dist.init_process_group('gloo', rank=r + 1, world_size=2)"
    ran = fresh.run(f"%%sky_remote on_error=wait\n{body}")
    assert "init_process_group(rank=1): the pool has 2 ranks, and this is rank 0" in ran.traceback
    ran = fresh.run(
        "%%sky_remote\ndist.destroy_process_group(); dist.init_process_group(world_size=4)"
    )
    assert "init_process_group(world_size=4): the pool has 2 ranks" in ran.traceback
    assert fresh.run("%%sky_remote\ndist.init_process_group()").status == "ok"


def test_a_group_that_is_destroyed_is_destroyed(fresh):
    ended = "%%sky_remote\nimport skyward_nb as sky\ndist.destroy_process_group()\n"
    ran = fresh.run(f"{ended}dist.is_initialized()")
    assert ran.result == "[0-1] False"
    assert "formed again" in ran.picture
    for call in ("sky.barrier()", "sky.mesh()"):
        ran = fresh.run(f"{ended}{call}")
        assert "dist.init_process_group() makes it anew" in ran.traceback
    # A function that a cell took over before, and one of torch's own that forms a group.
    ran = fresh.run(
        f"{ended}from torch.distributed.device_mesh import init_device_mesh\n"
        "mesh = init_device_mesh('cpu', (2,))\nt = torch.ones(1)\ndist.all_reduce(t)\nt.item()"
    )
    assert ran.result == "[0-1] 2.0", ran.traceback
    assert fresh.run("%%sky_remote\nsky.barrier(); sky.mesh() is sky.mesh()").result == "[0-1] True"


def test_a_group_that_a_cell_destroyed_is_there_again_in_the_next(fresh):
    for _ in range(2):
        ran = fresh.run("%%sky_remote\ndist.destroy_process_group()\nsent = 3")
        assert ran.status == "ok"
        assert fresh.run("%%sky_remote ranks=head\nsent").result == "[0] 3"
        assert meets(fresh)


def test_a_mesh_is_of_the_group_that_is_there(fresh):
    ran = fresh.run(
        "%%sky_remote\nimport skyward_nb as sky\nfirst = sky.mesh()\ndist.destroy_process_group()\n"
        "dist.init_process_group()\nt = torch.ones(1)\n"
        "dist.all_reduce(t, group=sky.mesh().get_group('fsdp'))\nt.item(), sky.mesh() is first"
    )
    assert ran.result == "[0-1] (2.0, False)", ran.traceback


def test_a_name_of_an_earlier_generation_is_good_in_the_next(fresh, tmp_path):
    fresh.run(
        "%%sky_remote\nfrom torch.distributed import init_process_group, destroy_process_group"
    )
    ran = fresh.run(f"%%sky_remote\n{fails_alone(1, tmp_path / 'begun')}", timeout=60)
    assert "formed again" in ran.traceback
    ran = fresh.run(
        "%%sky_remote\ninit_process_group('gloo')\ndestroy_process_group()\ninit_process_group()"
    )
    assert ran.status == "ok", ran.traceback
    assert meets(fresh)


def test_what_a_store_of_ones_own_forms_is_left_to_torch(fresh):
    ran = fresh.run(
        "%%sky_remote\ndist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "dist.get_world_size()"
    )
    assert ran.result == "[0-1] 1", ran.traceback


@pytest.mark.extensive
def test_a_process_that_a_cell_forks_forms_its_own(fresh):
    ran = fresh.run(
        "%%sky_remote\nchild = os.fork()\nif not child:\n"
        "    dist.destroy_process_group()\n"
        "    dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "    os._exit(dist.get_world_size() + 6)\nos.waitstatus_to_exitcode(os.waitpid(child, 0)[1])"
    )
    assert ran.result == "[0-1] 7", ran.traceback
    assert meets(fresh)


WAITS = {
    "a collective of one's own group": (
        "dist.init_process_group('cpu:gloo')\nprint('here')\nif not r: dist.all_reduce(t)",
        "all_reduce",
    ),
    "one that is formed after another was destroyed": (
        "dist.destroy_process_group()\ndist.init_process_group()\nprint('here')\nif not r: dist.barrier()",
        "barrier",
    ),
    "forming it": (
        "dist.destroy_process_group()\nprint('here')\nif not r: dist.init_process_group()",
        "init_process_group",
    ),
    "a model of one's own group": (
        "dist.init_process_group('cpu:gloo')\nnet = DDP(torch.nn.Linear(9, 9))\n"
        "loss = net(torch.ones(1, 9)).sum()\nprint('here')\nif not r: loss.backward()",
        "backward",
    ),
}


@pytest.mark.extensive
def test_ranks_that_wait_in_groups_that_user_code_formed_are_freed(no_leaks):
    from node.drivers import driver

    with driver(2, "torch") as made:
        before = (
            "import torch, torch.distributed as dist\n"
            "from torch.nn.parallel import DistributedDataParallel as DDP\n"
            "r, t = dist.get_rank(), torch.ones(1)"
        )
        assert not any(end.failure for end in made.ran(before))
        for body, where in WAITS.values():
            run = made.stuck(body, {0: where})
            made.interrupt(run)
            made.cut(run)
            ends = made.ended(run)
            assert [end.interrupted for end in ends] == [True, False], ends
            assert ends[0].waited_in == where
            made.reform()
            again = made.ran("s = torch.ones(1)\ndist.all_reduce(s)\nassert s.item() == 2")
            assert not any(end.failure for end in again), again


@pytest.mark.extensive
def test_a_collective_may_take_as_long_as_it_was_said(make):
    import pools

    pool = make(framework=("torch",), collective_timeout=2.0)
    body = (
        "import torch, torch.distributed as dist\n{before}\nraised = ''\nif dist.get_rank() == 0:\n"
        "    try: dist.all_reduce(torch.ones(1))\n    except RuntimeError as error: raised = str(error)\n"
        "'imed out' in raised"
    )
    for before in ("", "dist.destroy_process_group(); dist.init_process_group()"):
        assert pools.values(pool, body.format(before=before)) == [True, False]
        pool.restart(lambda _: None)


@pytest.mark.extensive
def test_who_was_missed_when_a_collective_took_too_long_is_told(notebook):
    notebook.run("%sky up nodes=3 framework=torch collective_timeout=2s pool=late", timeout=90)
    ran = notebook.run(
        "%%sky_remote pool=late\nimport time, torch, torch.distributed as dist\n"
        "if dist.get_rank() == 1:\n    time.sleep(60)\n"
        "elif dist.get_rank() == 0:\n    dist.all_reduce(torch.ones(1))",
        timeout=90,
    )
    assert ran.error[0] == "RuntimeError"
    said = (
        "after 2 s rank 0 waited in all_reduce for rank 1, which was in Cell In[{}], line 4: "
        "time.sleep(60), and rank 2, which had finished"
    )
    number = re.search(r"Cell In\[(\d+)\]", ran.traceback)[1]
    assert said.format(number) in ran.traceback
    assert said.format(number) in ran.picture
    assert notebook.run("%sky down pool=late", timeout=60).status == "ok"


# ── devices ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def gpus(monkeypatch):
    """How many GPUs torch sees is said here; which one was set is noted."""
    import torch

    noted = []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "set_device", noted.append)

    def see(count):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        return noted

    return see


@pytest.mark.parametrize(
    ("asked", "ranks", "local_rank", "sees", "backend", "device"),
    [
        ("auto", 4, 3, 4, "nccl", 3),
        ("nccl", 4, 3, 4, "nccl", 3),
        ("gloo", 4, 3, 4, "gloo", 3),
        ("gloo", 4, 3, 2, "gloo", 1),
        ("auto", 2, 1, 1, "gloo", 0),
        ("auto", 1, 0, 8, "nccl", 0),
    ],
)
def test_the_device_of_a_rank(gpus, asked, ranks, local_rank, sees, backend, device):
    from skyward_nb.plugins.torch_plugin import device_and_backend

    noted = gpus(sees)
    info = InstanceInfo(accelerators=sees, workers_per_node=ranks, local_rank=local_rank)
    assert device_and_backend(info, asked) == backend
    assert noted == [device]


def test_a_slice_is_the_one_device_that_its_rank_sees(gpus, monkeypatch):
    from skyward_nb.plugins.torch_plugin import device_and_backend

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1234")
    noted = gpus(1)
    info = InstanceInfo(accelerators=3, workers_per_node=3, local_rank=2)
    assert device_and_backend(info, "auto") == "gloo", "NCCL takes slices of one GPU for one GPU"
    assert device_and_backend(info, "nccl") == "nccl", "they may be of several"
    assert noted == [0, 0]


def test_ranks_that_share_a_gpu_cannot_have_nccl(gpus):
    from skyward_nb.plugins.torch_plugin import device_and_backend

    gpus(1)
    info = InstanceInfo(accelerators=1, workers_per_node=2, local_rank=1)
    with pytest.raises(
        RuntimeError, match="backend=nccl needs a GPU for each rank, and the 2 ranks"
    ):
        device_and_backend(info, "nccl")
    gpus(0)
    with pytest.raises(RuntimeError, match="PyTorch sees none"):
        device_and_backend(info, "auto")


def test_on_cpu_there_is_no_device():
    from skyward_nb.plugins.torch_plugin import device_and_backend

    assert device_and_backend(InstanceInfo(), "auto") == "gloo"


def test_more_ranks_than_gpus_want_gloo():
    from skyward_nb.options.specs import spec_of
    from skyward_nb.words.accelerators import Accelerator
    from skyward_nb.words.errors import OptionError
    from skyward_nb.words.pool_options import PoolOptions
    from skyward_nb.words.spec import PoolSpec

    asked = PoolOptions(accelerator=Accelerator("A100"), ranks_per_node=2, framework=("torch",))
    with pytest.raises(OptionError, match=r"two ranks do not share one.*backend=gloo they share"):
        spec_of(PoolSpec(), asked)
    with pytest.raises(OptionError, match="NCCL wants one for each rank"):
        spec_of(PoolSpec(), asked.changed(backend="nccl"))
    assert spec_of(PoolSpec(), asked.changed(backend="gloo")).slots == 2
    with pytest.raises(OptionError, match="backend=gloo needs framework=torch"):
        spec_of(PoolSpec(), asked.changed(backend="gloo", framework=()))


# ── on GPUs ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.gpu
def test_one_rank_on_a_gpu_has_nccl(no_leaks):
    name = on_gpus(1)
    with kernel() as running:
        ran = running.run(
            f"%%sky_remote accelerator={name} framework=torch\nimport torch, torch.distributed as dist\n"
            "t = torch.ones(3, device='cuda')\ndist.all_reduce(t)\nimport skyward_nb as sky\n"
            "sky.barrier()\nt.tolist(), dist.get_backend(), torch.cuda.current_device()",
            timeout=120,
        )
        assert ran.result == "[0] ([1.0, 1.0, 1.0], 'nccl', 0)", ran.traceback
        ran = running.run(
            "%%sky_remote\ndist.init_process_group('nccl')\ndist.destroy_process_group()\n"
            "dist.init_process_group('cpu:gloo,cuda:nccl', device_id=torch.device('cuda:0'))\n"
            "dist.all_reduce(t)\ndist.all_reduce(torch.ones(1))\nt.tolist()"
        )
        assert ran.result == "[0] [1.0, 1.0, 1.0]", ran.traceback


@pytest.mark.gpu
def test_two_ranks_share_a_gpu_on_gloo(no_leaks):
    name = on_gpus(1)
    with kernel() as running:
        ran = running.run(
            f"%%sky_remote accelerator={name} ranks_per_node=2 backend=gloo framework=torch\n"
            "import torch, torch.distributed as dist\n"
            "from torch.nn.parallel import DistributedDataParallel as DDP\ntorch.manual_seed(0)\n"
            "net = DDP(torch.nn.Linear(4, 1).cuda())\nx = torch.full((2, 4), 1.0 + dist.get_rank()).cuda()\n"
            "net(x).sum().backward()\nt = torch.ones(1, device='cuda')\ndist.all_reduce(t)\n"
            "t.item(), torch.cuda.current_device(), net.module.weight.grad.flatten().tolist()",
            timeout=120,
        )
        assert ran.result == "[0-1] (2.0, 0, [3.0, 3.0, 3.0, 3.0])", ran.traceback


@pytest.mark.gpu
def test_after_an_error_that_loses_the_gpu_it_is_said_what_to_do(no_leaks):
    name = on_gpus(1)
    with kernel() as notebook:
        ran = notebook.run(
            f"%%sky_remote accelerator={name} framework=torch\nimport torch\n"
            "torch.zeros(3, device='cuda')[torch.tensor([7], device='cuda')]\ntorch.cuda.synchronize()",
            timeout=120,
        )
        assert "rank 0 cannot use its GPU any more" in ran.picture, ran.traceback
        assert notebook.run("%sky restart").status == "ok"
        ran = notebook.run("%%sky_remote\nimport torch\ntorch.ones(3, device='cuda').sum().item()")
        assert ran.result == "[0] 3.0", ran.traceback


@pytest.mark.gpu
def test_nccl_is_aborted_from_another_thread():
    """A collective of NCCL that waits on the device raises, or ends, once its group is cut."""
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip("NCCL wants a GPU for each of two ranks")
    from node.drivers import driver

    with driver(2, "torch") as made:
        run = made.stuck(
            "import torch, torch.distributed as dist\nprint('here')\n"
            "t = torch.ones(1, device='cuda')\n"
            "if dist.get_rank(): dist.all_reduce(t); t.item()"
        )
        made.interrupt(run)
        assert any(each.cut for each in made.cut(run))
        assert made.ended(run)[1].interrupted
        made.reform()
        assert not any(
            end.failure for end in made.ran("dist.all_reduce(torch.ones(1, device='cuda'))")
        )
