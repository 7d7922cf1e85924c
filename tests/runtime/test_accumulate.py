"""`sky.accumulate`: gradients of the large batch, with the collectives of one."""

import gc
import weakref

import pytest
from kernels import ready
from later import Later, needs

import skyward_nb as sky

pytestmark = [pytest.mark.torch, needs("torch")]
torch = Later("torch")


def lasts(model, count, **numbers):
    found = []
    for _ in range(count):
        with sky.accumulate(model, **numbers) as last:
            found.append(last)
    return found


@pytest.fixture
def model():
    return torch.nn.Linear(2, 1)


def test_every_nth_is_the_last_made_once_or_anew(model):
    made_once = sky.accumulate(torch.nn.Linear(2, 1), every=3)
    found = []
    for _ in range(7):
        with made_once as last:
            found.append(last)
    assert found == lasts(model, 7, every=3) == [False, False, True, False, False, True, False]


def test_the_rest_at_the_end_of_an_epoch_is_a_step_of_its_own(model):
    epoch = [False, False, True, False, True]
    assert lasts(model, 10, every=3, total=5) == epoch * 2


@pytest.mark.parametrize(
    ("every", "total", "found"), [(1, None, [True] * 3), (9, 2, [False, True])]
)
def test_extremes(model, every, total, found):
    assert lasts(model, len(found), every=every, total=total) == found


def test_one_that_raises_is_not_counted(model):
    assert lasts(model, 2, every=3) == [False, False]
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt), sky.accumulate(model, every=3) as last:
            assert last
            raise KeyboardInterrupt
    assert lasts(model, 2, every=3) == [True, False]


def test_models_are_counted_apart_and_not_kept(model):
    other = torch.nn.Linear(2, 1)
    assert lasts(model, 1, every=2) == lasts(other, 1, every=2) == [False]
    assert lasts(model, 1, every=2) == [True]
    gone = weakref.ref(other)
    del other
    gc.collect()
    assert gone() is None


def test_other_numbers_and_other_cells_count_anew(model, monkeypatch):
    assert lasts(model, 1, every=2) == [False]
    assert lasts(model, 2, every=3) == [False, False]
    monkeypatch.setattr("skyward_nb.runtime.event_sink._current", 7)
    assert lasts(model, 3, every=3) == [False, False, True]


def test_one_within_another_is_an_error(model):
    with sky.accumulate(model, every=2), pytest.raises(RuntimeError, match="within another"):
        with sky.accumulate(model, every=2):
            pass
    assert lasts(model, 1, every=2) == [True]


@pytest.mark.parametrize(("every", "total"), [(0, None), (-1, None), (1, 0)])
def test_numbers_below_one(model, every, total):
    with pytest.raises(ValueError, match="of 1 or more"):
        sky.accumulate(model, every=every, total=total)


@pytest.mark.parametrize("every", [2.0, None, "2"])
def test_what_is_no_number(model, every):
    with pytest.raises(TypeError):
        sky.accumulate(model, every=every)


@pytest.mark.parametrize("model", [None, "model", [1]])
def test_what_is_no_model(model):
    with pytest.raises(TypeError, match=r"not a torch\.nn\.Module"):
        sky.accumulate(model, every=2)


def test_what_is_for_functions_of_jax_is_refused_with_a_module(model):
    with pytest.raises(TypeError, match=r"reduce_dtype= is not for a torch\.nn\.Module"):
        sky.accumulate(model, 2, reduce_dtype="bf16")


# ── on ranks ────────────────────────────────────────────────────────────────────────────

SETUP = """\
%%sky_remote
import torch, copy, skyward_nb as sky
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.fsdp import fully_shard
from skyward_nb.plugins.torch_plugin import PLUGIN

torch.manual_seed(0)
base = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
x, y = torch.randn(24, 3), torch.randn(24, 1)
parts = list(zip(*(t.split(2) for t in sky.shard(x, y))))  # six micro-batches on each rank

def plain(): return copy.deepcopy(base)
def ddp(): return DDP(plain())
def fsdp():
    model = plain()
    fully_shard(model[0]); fully_shard(model[2])
    return fully_shard(model)
def roots():
    "Several FSDP2 modules, none of which holds the others."
    model = plain()
    for layer in model[::2]: fully_shard(layer)
    return model
def nested():
    "DDP within a module of the person's own."
    return nn.Sequential(ddp())
def compiled():
    return torch.compile(ddp(), backend="eager")

def whole(p):
    return p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad

def steps():
    return sum(PLUGIN.steps("").values())

def loss(model, part, pieces):
    return (model(part[0]) - part[1]).pow(2).mean() / pieces

def run(make, every):
    "Gradients of each step of an epoch, and how many collectives it took."
    model, found = make(), []
    for each in parts[:2]:  # DDP arranges its buckets anew in the second
        loss(model, each, every).backward()
    model.zero_grad()
    before = steps()
    for each in parts:
        with sky.accumulate(model, every=every, total=len(parts)) as last:
            loss(model, each, every).backward()
        if last:
            found.append([whole(p).clone() for p in model.parameters()])
            model.zero_grad()
    used = steps() - before - (len(list(model.parameters())) * len(found) if make in (fsdp, roots) else 0)
    return found, used

def large(every):
    "The same from one process that sees all ranks' micro-batches."
    model, found, n = plain(), [], sky.instance_info().world_size
    for start in range(0, len(parts), every):
        model.zero_grad()
        for k in range(start, min(start + every, len(parts))):
            for r in range(n):
                xs, ys = x[r::n].split(2)[k], y[r::n].split(2)[k]
                (loss(model, (xs, ys), every) / n).backward()
        found.append([p.grad.clone() for p in model.parameters()])
    return found

def same(a, b):
    return len(a) == len(b) and all(
        torch.allclose(p, q, atol=1e-6) for s, t in zip(a, b) for p, q in zip(s, t)
    )
"""


@pytest.fixture(scope="module")
def notebook():
    pool = "%%sky_remote nodes=2 framework=torch grace=20s\nimport torch"
    with ready(pool, SETUP) as running:
        yield running


# Collectives that six micro-batches save: for DDP one each, for FSDP2 one for each of three layers.
SAVED = {"ddp": 1, "nested": 1, "compiled": 1, "fsdp": 3, "roots": 3}


@pytest.mark.parametrize("make", SAVED)
@pytest.mark.parametrize(("every", "steps"), [(2, 3), (4, 2)])
def test_gradients_are_those_of_the_large_batch_with_fewer_collectives(
    notebook, make, every, steps
):
    ran = notebook.run(
        f"%%sky_remote out=found\ngrads, used = run({make}, {every})\n"
        f"each, more = run({make}, 1)\nsame(grads, large({every})), used, more"
    )
    assert ran.status == "ok", ran.traceback
    for rank in (0, 1):
        right, used, more = eval(notebook.run(f"found[{rank}]").result)
        assert right
        assert more - used == (6 - steps) * SAVED[make]


@pytest.mark.parametrize("make", SAVED)
def test_after_one_that_raised_the_model_synchronises_as_before(notebook, make):
    """Gradients of a step that has a failed micro-batch in it, which was run again."""
    ran = notebook.run(
        f"%%sky_remote out=found\nmodel, failed = {make}(), []\n"
        "for k in (0, 0, 1):\n"
        "    try:\n"
        "        with sky.accumulate(model, every=2) as last:\n"
        "            if not failed: failed.append(1); 1 / 0\n"
        "            loss(model, parts[k], 2).backward()\n"
        "    except ZeroDivisionError:\n"
        "        loss(model, parts[5], 2).backward(); alone = steps()\n"
        "        loss(model, parts[5], 2).backward(); alone = steps() - alone; model.zero_grad()\n"
        "same([[whole(p) for p in model.parameters()]], large(2)[:1]), last, alone > 0"
    )
    assert ran.status == "ok", ran.traceback
    assert notebook.run("list(found)").result == "[(True, True, True), (True, True, True)]"


@pytest.mark.parametrize("make", SAVED)
def test_a_cell_that_ended_within_a_step_leaves_nothing_to_the_next(notebook, make):
    """Not even where gradients wait that zero_grad does not reach."""
    ran = notebook.run(
        f"%%sky_remote\nmodel = {make}()\n"
        "for each in parts[:2]:\n"
        "    with sky.accumulate(model, every=4): loss(model, each, 2).backward()"
    )
    assert ran.status == "ok", ran.traceback
    ran = notebook.run(
        "%%sky_remote out=found\nmodel.zero_grad()\n"
        "for each in parts[:2]:\n"
        "    with sky.accumulate(model, every=2) as last: loss(model, each, 2).backward()\n"
        "same([[whole(p) for p in model.parameters()]], large(2)[:1]), last"
    )
    assert ran.status == "ok", ran.traceback
    assert notebook.run("list(found)").result == "[(True, True), (True, True)]"
