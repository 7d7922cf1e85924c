"""What torch has for training in parallel, in cells on four ranks, beside a run in one process."""

from __future__ import annotations

import pytest
from kernels import ready
from later import needs
from plugins.alone import fails_alone

pytestmark = [
    pytest.mark.torch,
    needs("torch"),
]

READY = """%%sky_remote nodes=2 ranks_per_node=2 framework=torch
import tempfile
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions, get_model_state_dict, get_state_dict, set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
import skyward_nb as sky

r = dist.get_rank()
torch.manual_seed(1)
x, y = torch.randn(16, 8), torch.randn(16, 4)

def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 4))

def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=0.02)

def train(model, x, y, steps=5, opt=None):
    opt = opt or adam(model)
    losses = []
    for _ in range(steps):
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.detach())
    return torch.stack(losses)

def whole(model):
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))

def mean(losses):
    dist.all_reduce(losses)
    return losses / dist.get_world_size()

def same(model, losses):
    '''The largest differences from a run in one process: of losses, and of weights.'''
    state = whole(model)
    if r:  # a whole state is gathered on the first rank
        return (losses - alone).abs().max().item(), 0.0
    return (losses - alone).abs().max().item(), max((state[k] - weights[k]).abs().max().item() for k in weights)

one = net()
alone = train(one, x, y)
weights = {name: value.clone() for name, value in one.state_dict().items()}
mine = x[r::4], y[r::4]
alone.tolist()
"""


@pytest.fixture(scope="module")
def four():
    with ready() as running:
        ran = running.run(READY)
        assert ran.status == "ok", ran.traceback
        losses = eval(ran.result.partition("] ")[2])
        assert losses[0] > 1.2 * losses[-1] > 0, "it learns"
        yield running


def differences(four, body):
    ran = four.run(f"%%sky_remote out=told\n{body}", timeout=90)
    assert ran.status == "ok", ran.traceback
    return eval(four.run("list(told)").result)


def check(told):
    assert len(told) == 4
    for losses, parameters in told:
        assert losses < 1e-5
        assert parameters < 1e-5


SHARDED = (
    "for part in model:\n    if isinstance(part, nn.Linear): fully_shard(part, mesh=mesh)\n"
    "fully_shard(model, mesh=mesh)\n"
)


def test_fsdp(four):
    body = "model, mesh = net(), sky.mesh()['fsdp']\n" + SHARDED
    check(differences(four, body + "same(model, mean(train(model, *mine)))"))
    assert differences(four, "model[0].weight.to_local().shape[0]") == [8] * 4


def test_hsdp(four):
    body = (
        "model, mesh = net(), init_device_mesh('cpu', (2, 2), mesh_dim_names=('replicate', 'shard'))\n"
        + SHARDED
    )
    check(differences(four, body + "same(model, mean(train(model, *mine)))"))
    assert differences(four, "model[0].weight.to_local().shape[0]") == [16] * 4


PLAN = "{'0': ColwiseParallel(), '2': RowwiseParallel()}"


def test_tensor_parallel(four):
    body = (
        "mesh = init_device_mesh('cpu', (4,), mesh_dim_names=('tp',))\n"
        f"model = parallelize_module(net(), mesh, {PLAN})\n"
    )
    check(differences(four, body + "same(model, train(model, x, y))"))
    assert differences(four, "tuple(model[2].weight.to_local().shape)") == [(16, 8)] * 4


def test_fsdp_with_tensor_parallel(four):
    body = (
        "both = init_device_mesh('cpu', (2, 2), mesh_dim_names=('fsdp', 'tp'))\n"
        f"model, mesh = parallelize_module(net(), both['tp'], {PLAN}), both['fsdp']\n"
        + SHARDED
        + "row = both.get_local_rank('fsdp')\n"
        "same(model, mean(train(model, x[row::2], y[row::2])))"
    )
    check(differences(four, body))
    assert differences(four, "tuple(model[2].weight.to_local().shape)") == [(8, 16)] * 4


def test_reductions_in_bf16(four):
    body = (
        "model, mesh = net(), init_device_mesh('cpu', (4,))\n"
        "fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.bfloat16))\n"
        "same(model, mean(train(model, *mine)))"
    )
    told = differences(four, body)
    assert all(losses < 0.05 for losses, _ in told)
    assert told[0][1] > 0, "they are less exact"


def test_a_checkpoint_is_loaded_into_another_arrangement(four, tmp_path):
    """Saved after three steps from shards of four, loaded into shards of two, and trained on."""
    save = (
        "model, mesh = net(), init_device_mesh('cpu', (4,))\n"
        + SHARDED
        + "opt = adam(model)\nfirst = train(model, *mine, steps=3, opt=opt)\n"
        "m, o = get_state_dict(model, opt)\n"
        f"dcp.save({{'model': m, 'opt': o}}, checkpoint_id={str(tmp_path)!r})"
    )
    assert four.run(f"%%sky_remote\n{save};", timeout=90).status == "ok"
    assert len(list(tmp_path.glob("*.distcp"))) == 4
    load = (
        "model, mesh = net(7), init_device_mesh('cpu', (2, 2), mesh_dim_names=('a', 'b'))\n"
        + SHARDED
        + "opt = adam(model)\nm, o = get_state_dict(model, opt)\nstate = {'model': m, 'opt': o}\n"
        f"dcp.load(state, checkpoint_id={str(tmp_path)!r})\n"
        "set_state_dict(model, opt, model_state_dict=state['model'], optim_state_dict=state['opt'])\n"
        "rest = train(model, *mine, steps=2, opt=opt)\nsame(model, mean(torch.cat([first, rest])))"
    )
    check(differences(four, load))


def test_all_of_it_in_groups_that_a_script_formed_and_then_in_a_new_generation(four, tmp_path):
    body = (
        "dist.destroy_process_group()\ndist.init_process_group('gloo', rank=r, world_size=4)\n"
        "model, mesh = net(), init_device_mesh('cpu', (4,))\n" + SHARDED
    )
    check(differences(four, body + "same(model, mean(train(model, *mine)))"))
    ran = four.run(f"%%sky_remote\n{fails_alone(2, tmp_path / 'begun')}train(model, *mine)")
    assert ran.error[0] == "ValueError"
    assert "formed again" in ran.traceback
    again = "model, mesh = net(), sky.mesh()['fsdp']\n" + SHARDED
    check(differences(four, again + "same(model, mean(train(model, *mine)))"))
