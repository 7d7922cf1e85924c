"""Models of torch go on after ranks were interrupted, cut, or failed: nothing is wrapped or made again."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from types import SimpleNamespace

import msgspec
import pytest
from later import needs
from pools import request, values

from skyward_nb.plugins import torch_models
from skyward_nb.plugins.torch_kept import GroupWords, RankStanding, made_by_all, plan_of
from skyward_nb.plugins.torch_models import ModelsStanding
from skyward_nb.pool import run_executor
from skyward_nb.protocol.events import Output
from skyward_nb.words.decoding import from_json

pytestmark = [
    pytest.mark.torch,
    needs("torch"),
]

# ── which groups go on ──────────────────────────────────────────────────────────────────

ALL = GroupWords("0", (0, 1, 2), ("gloo",), is_default=True, can_go_on=True)
PAIR = GroupWords("1", (0, 2), ("gloo",), is_default=False, can_go_on=True)
FULL = GroupWords("1", (0, 2), ("gloo",), is_default=False, can_go_on=False)
OTHER = GroupWords("2", (1,), ("gloo",), is_default=False, can_go_on=True)


@pytest.mark.parametrize(
    ("had", "names"),
    [
        ([(ALL, PAIR), (ALL, OTHER), (PAIR, ALL)], ("0", "1", "2")),
        ([(ALL, PAIR), (ALL,), (ALL,)], ("0",)),
        ([(ALL, PAIR), (ALL,), (ALL, FULL)], ("0",)),
        ([(ALL,), (), (ALL,)], None),
        ([(PAIR,), (), (PAIR,)], None),
    ],
    ids=["all", "made by one of two", "no room", "destroyed on one", "no default"],
)
def test_groups_that_go_on(had, names):
    plan = plan_of([RankStanding(groups, 3, 1, 0, 0, False, ModelsStanding()) for groups in had])
    assert (plan and tuple(each.name for each in plan)) == names


def test_what_only_some_ranks_of_it_have_made_is_not_kept():
    """Else these would go on, and the others wait for them in making it."""
    mesh, pair = {"axes": ()}, {"(0, 1)": (0, 1)}
    assert made_by_all([mesh | pair, mesh | pair, mesh]) == {"axes", "(0, 1)"}
    assert made_by_all([mesh | pair, mesh, {}]) == set()


def test_a_rate_that_is_not_finite_travels_and_is_equal_to_itself():
    """So does none: Adafactor of transformers finds its own."""
    groups = [{"lr": float("nan")}, {"lr": float("inf")}, {"lr": None}, {}]
    rates = torch_models.rates_of([SimpleNamespace(param_groups=groups)])
    assert rates == (("SimpleNamespace", "nan", "inf", "", ""),)
    own = RankStanding((ALL,), 1, 1, 0, 0, False, ModelsStanding(rates=rates))
    told = [from_json(msgspec.json.encode(own), RankStanding) for _ in range(2)]
    assert told[0] == told[1] == own


# ── trainings that are interrupted ──────────────────────────────────────────────────────

TRAINING = """
import os, time, torch, torch.distributed as dist, skyward_nb as sky
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor, Shard
rank, size = dist.get_rank(), dist.get_world_size()

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))

def batch(step):
    g = torch.Generator().manual_seed(step)
    x = torch.randn(4 * size, 8, generator=g)
    return x[rank::size], x.sum(1, keepdim=True).sin()[rank::size]

def optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)

class Training:
    '''A loop as people write it: what it counts, and its schedule, must be as far as its weights.'''

    def __init__(self, model):
        self.model, self.optimizer = model, optimizer(model)
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.99)
        self.losses, self.steps = {}, 0

    def run(self, until, pause=0.0):
        while self.steps < until:
            x, y = batch(self.steps)
            loss = nn.functional.mse_loss(self.model(x), y)
            time.sleep(pause * (rank + 1))
            loss.backward()
            self.losses[self.steps] = loss.item()
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad()
            self.steps += 1

    def count(self):
        '''As one does after any interrupt that came between a step and its bookkeeping.'''
        self.steps = self.made()[-1]
        while self.schedule.last_epoch < self.steps:
            self.schedule.step()

    def made(self):
        each = {int(state['step']) for state in self.optimizer.state.values()}
        return self.steps, self.schedule.last_epoch, *each

def sharded():
    model = net()
    for layer in (model[0], model[2]):
        fully_shard(layer)
    return fully_shard(model)

def weights(model):
    found = [p.full_tensor() if hasattr(p, 'full_tensor') else p for p in model.parameters()]
    return torch.cat([p.detach().flatten() for p in found])

def alone(until):
    '''What each rank would have lost and learnt with the mean of all ranks' gradients, in one process.'''
    model, losses = net(), {}
    made = optimizer(model)
    schedule = torch.optim.lr_scheduler.ExponentialLR(made, 0.99)
    for step in range(until):
        g = torch.Generator().manual_seed(step)
        x = torch.randn(4 * size, 8, generator=g)
        y = x.sum(1, keepdim=True).sin()
        each = [nn.functional.mse_loss(model(x[r::size]), y[r::size]) for r in range(size)]
        (sum(each) / size).backward()
        made.step(); schedule.step(); made.zero_grad()
        losses[step] = each[rank].item()
    return losses, weights(model)

def apart(training, until):
    '''How far losses and weights are from those of one that was never interrupted.'''
    losses, learnt = alone(until)
    return (max(abs(losses[n] - training.losses[n]) for n in range(until)),
            (weights(training.model) - learnt).abs().max().item())

pair = dist.new_group([0, 1])
"""


@pytest.fixture(scope="module")
def two(lender):
    pool = lender.lend(nodes=2, framework=("torch",), grace=10.0)
    assert values(pool, TRAINING + "dist.get_world_size()") == [2, 2]
    return pool


def ended(pool, body, **card):
    """How a run ends."""
    pool.look(lambda _: None)
    return pool.run(request(pool, body, **card), lambda _: None)


def does(pool, body):
    """Runs to its end on all ranks."""
    outcome = ended(pool, body)
    assert not outcome.failed, [end.failure.traceback for end in outcome.failed]
    return outcome


SAYS = "print('here', flush=True)\n"


def pressed(pool, body, after=0.0, says=SAYS):
    """How a run ends that is interrupted so long after all its ranks printed `here`."""
    here = set()

    def watch(event):
        if isinstance(event, Output) and "here" in event.text and event.rank not in here:
            here.add(event.rank)
            if len(here) == len(pool.ranks):
                threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT)).start()

    pool.look(lambda _: None)
    outcome = pool.run(request(pool, f"{says}{body}"), watch)
    assert not outcome.lost, outcome.lost
    return outcome


TELLS = """
import sys, threading
from skyward_nb.system.thread_frames import looking
def tell(main=threading.main_thread().ident):
    names = []
    while '_engine_run_backward' not in names:
        time.sleep(0.01)
        with looking():
            frame, names = sys._current_frames()[main], []
            while frame is not None:
                names.append(frame.f_code.co_name)
                frame = frame.f_back
    print('here', flush=True)
"""
"""`tell`, in a thread, prints it once a backward pass goes on."""


def errors(outcome):
    return {end.failure.type_name for end in outcome.done.values() if end.failure}


def test_an_interrupted_training_stops_on_all_ranks_after_the_same_step(two, monkeypatch):
    # A rank that is stopped for a second is none that does not answer, and one whose steps are slow still trains.
    monkeypatch.setattr(run_executor, "PATIENCE", 30.0)
    does(two, "t = Training(DDP(net()))\nt.run(2, 0.25)")
    outcome = pressed(two, "t.run(10_000, 0.25)", 1.2)
    assert errors(outcome) == {"KeyboardInterrupt"}
    assert not outcome.was_cut and not outcome.was_reformed, "nothing was lost"
    (first, *others) = values(two, "t.made()")
    assert others == [first]
    assert first[0] == first[1] == first[2] > 2
    until = first[0] + 5
    does(two, f"t.run({until})")
    assert max(max(each) for each in values(two, f"apart(t, {until})")) < 1e-5


def test_models_groups_and_meshes_go_on_after_a_cut(two):
    does(
        two,
        "t, f = Training(DDP(net())), Training(sharded())\nt.run(3); f.run(3)\n"
        "mesh = init_device_mesh('cpu', (2,), mesh_dim_names=('tp',))\n"
        "spread = distribute_tensor(torch.arange(4.0), mesh['tp'], [Shard(0)])",
    )
    # One rank is away in the midst of a backward pass: the other waits in it, and is cut.
    body = (
        "x, y = batch(3)\nloss = nn.functional.mse_loss(f.model(x), y)\n"
        "ddp = nn.functional.mse_loss(t.model(x), y)\n"
        "if rank == 0:\n    threading.Thread(target=tell).start()\n    ddp.backward()\n"
        "else:\n    print('here', flush=True)\n    time.sleep(60)"
    )
    outcome = pressed(two, body, 0.1, TELLS)
    assert outcome.was_cut and outcome.was_reformed
    assert outcome.regained["torch"] == (
        "models of torch (DDP, FSDP2), groups and meshes made before go on; a step that was under way is lost"
    )
    assert values(two, "sum(p.grad is not None for p in t.model.parameters())") == [0, 0]
    check = (
        "t.run(6); f.run(6)\none = torch.ones(1)\n"
        "dist.all_reduce(one, group=pair); dist.all_reduce(one, group=mesh.get_group()); dist.barrier()\n"
        "new = DDP(net()); other = dist.new_group([0, 1]); dist.all_reduce(one, group=other)\n"
        "one.item(), spread.full_tensor().sum().item(), apart(t, 6), apart(f, 6)"
    )
    for one, summed, ddp, fsdp in values(two, check):
        assert (one, summed) == (8.0, 6.0)
        assert max(*ddp, *fsdp) < 1e-5


@pytest.fixture
def fails(tmp_path):
    """Rank 1 fails once rank 0 has come to `stays`."""
    mark = str(tmp_path / "stays")
    return (
        f"def stays():\n    open({mark!r}, 'w').close()\n    time.sleep(60)\n"
        f"def fails():\n    while not os.path.exists({mark!r}): time.sleep(0.01)\n"
        "    raise ValueError('bad loss')\n"
    )


def test_a_rank_that_failed_before_its_step_is_made_equal(two, fails):
    does(two, f"{fails}t = Training(DDP(net()))\nt.run(4)")
    body = (
        "x, y = batch(4)\nnn.functional.mse_loss(t.model(x), y).backward()\n"
        "if rank: fails()\n"
        "t.optimizer.step(); t.schedule.step(); t.optimizer.zero_grad()\nstays()"
    )
    outcome = ended(two, body)
    assert "ValueError" in errors(outcome)
    words = outcome.regained["torch"]
    assert "of this run rank 1 made 0, rank 0 made 1" in words, words
    assert "DDP models, their optimizers and schedules are as on rank 0" in words
    assert values(two, "t.steps = 5\nt.made()") == [(5, 5, 5)] * 2
    does(two, "t.losses[4] = alone(5)[0][4]\nt.run(8)")
    assert max(max(each) for each in values(two, "apart(t, 8)")) < 1e-5


def test_of_schedules_in_one_the_outer_one_goes_on(two):
    body = (
        "from skyward_nb.plugins.torch_models import replicas_with_holders\n"
        "s = DDP(net())\nfast = optimizer(s)\nschedules = torch.optim.lr_scheduler\n"
        "parts = [schedules.LambdaLR(fast, lambda _: 0.5) for _ in range(2)]\n"
        "whole = schedules.SequentialLR(fast, parts, [3])\n"
        "held = next(holders for ddp, holders in replicas_with_holders() if ddp is s)\n"
        "[type(each).__name__ for each in held]"
    )
    assert values(two, body) == [["AdamW", "SequentialLR"]] * 2


@pytest.mark.parametrize(
    ("ranks", "partial", "source"),
    [((0, 1, 2), [], 0), ((0, 1, 2), [0, 2], 1), ((2, 3), [0, 2], 3), ((0, 1), [0, 1], 0)],
)
def test_the_rank_that_others_are_made_as(ranks, partial, source):
    assert torch_models.source_of(ranks, partial) == source


def test_a_step_made_with_a_part_of_its_gradients_goes_to_no_other_rank(two, fails):
    """Rank 0 plays a GPU: it had called its step when the collective before it was cut."""
    does(two, f"{fails}t = Training(DDP(net()))\nt.run(4)")
    body = (
        "from skyward_nb.runtime.common_step import common_step\n"
        "if rank: fails()\n"
        "with torch.no_grad():\n    [p.fill_(7.0) for p in t.model.parameters()]\n"
        "common_step.cut_since(time.time_ns())\nt.optimizer.step()\nstays()"
    )
    words = ended(two, body).regained["torch"]
    assert (
        "on rank 0 the GPU may have made its last optimizer step with only part of the gradients"
        in words
    )
    assert "DDP models, their optimizers and schedules are as on rank 1" in words
    does(two, "t.steps = 4\nt.run(8)")
    assert max(max(each) for each in values(two, "apart(t, 8)")) < 1e-5


def test_a_step_that_takes_long_and_is_torn_goes_to_no_other_rank(two):
    does(two, "t = Training(DDP(net()))\nt.run(4)")
    body = (
        "class Slow(torch.optim.SGD):\n    def step(self, closure=None):\n"
        "        with torch.no_grad(): [p.fill_(7.0) for p in t.model.parameters()]\n"
        "        print('here', flush=True)\n        time.sleep(60)\n"
        "if rank: print('here', flush=True); time.sleep(60)\n"
        "Slow(t.model.parameters(), lr=0.1).step()"
    )
    outcome = pressed(two, body, says="")
    assert outcome.was_reformed and not outcome.was_cut
    words = outcome.regained["torch"]
    assert "on rank 0 an optimizer step was stopped in its midst" in words
    assert "DDP models, their optimizers and schedules are as on rank 1" in words
    does(two, "t.run(8)")
    assert max(max(each) for each in values(two, "apart(t, 8)")) < 1e-5


def test_shards_of_different_steps_are_not_used_silently(two, fails):
    does(two, f"{fails}f = Training(sharded())\nf.run(2)")
    body = (
        "x, y = batch(2)\nnn.functional.mse_loss(f.model(x), y).backward()\n"
        "if rank: fails()\nf.optimizer.step()\nstays()"
    )
    ended(two, body)
    outcome = ended(two, "f.model(batch(3)[0])", on_error="wait")
    assert errors(outcome) == {"RuntimeError"}
    message = outcome.done[0].failure.message
    assert "rank 1 made 0, rank 0 made 1" in message and "load a checkpoint" in message
    assert not ended(two, "f.model(batch(3)[0]).sum().backward()").failed


def test_after_a_time_limit_models_go_on(two):
    does(two, "t = Training(DDP(net()))\nt.run(2)")
    outcome = ended(two, "dist.barrier() if rank else time.sleep(60)", timeout=3.0)
    assert outcome.timed_out and outcome.regained
    does(two, "t.run(5)")
    assert max(max(each) for each in values(two, "apart(t, 5)")) < 1e-5


@pytest.mark.extensive
@pytest.mark.parametrize("make", ["DDP(net())", "sharded()"], ids=["ddp", "fsdp"])
def test_fifty_interrupts_at_random_moments(two, make):
    dice = random.Random(7)
    does(two, f"t = Training({make})\nt.run(1)")
    cut = together = 0
    for _ in range(50):
        outcome = pressed(two, "t.run(10**9, 0.002)", dice.uniform(0, 0.05))
        assert errors(outcome) == {"KeyboardInterrupt"}
        cut += outcome.was_reformed
        first, second = values(two, "t.made()")
        assert first == second, (outcome.was_cut, outcome.regained)
        together += not outcome.was_reformed and len({*first}) == 1
        does(two, "t.count()")
    until = first[0] + 5
    does(two, f"t.run({until})")
    assert max(max(each) for each in values(two, f"apart(t, {until})")) < 1e-4, cut
    print(f"{first[0]} steps; stopped together {together} times of 50, cut {cut} times")
    assert together > 25


@pytest.mark.extensive
def test_fifty_groups_in_turn(two):
    """What a backend that is used no more keeps: two threads, no descriptors but a store's."""
    look = (
        "len(os.listdir('/proc/self/task')), len(os.listdir('/proc/self/fd')), dist.get_backend()"
    )
    does(two, "t, f = Training(DDP(net())), Training(sharded())\nt.run(2); f.run(2)")
    before, took = values(two, look), []
    for turn in range(50):
        began = time.monotonic()
        outcome = ended(
            two, f"dist.barrier() if rank == {turn % 2} else time.sleep(60)", timeout=0.05
        )
        assert outcome.regained, outcome
        took.append(time.monotonic() - began)
        does(two, "t.run(t.steps + 1); f.run(f.steps + 1)")
    after = values(two, look)
    print(before, after, max(took))
    for (threads, files, _), (threads_then, files_then, _) in zip(before, after, strict=True):
        assert threads_then - threads <= 50 * 8
        assert files_then - files <= 50 * 3
    assert max(max(each) for each in values(two, "apart(t, 52)")) < 1e-4
    assert max(max(each) for each in values(two, "apart(f, 52)")) < 1e-4


# ── a rank that dies ────────────────────────────────────────────────────────────────────


def test_a_training_goes_on_where_living_ranks_were_when_one_died(two):
    make = "ddp = DDP(net())\nt = Training(ddp)\nfast = t.optimizer\nslow = t.schedule\n"
    two.restart(lambda _: None)
    does(two, f"{TRAINING}{make}\nassert not sky.rejoin(ddp, fast, slow)\nt.run(4)")
    outcome = ended(two, "if rank: os.kill(os.getpid(), 9)\nt.run(6)")
    assert outcome.lost.keys() == {1}
    assert outcome.kept == (
        "rank 0 kept the state of its models: run the cells that make them again, and in the last of these "
        "sky.rejoin(ddp, fast, slow)"
    )
    assert values(two, TRAINING + "'ddp' in globals()") == [False, False]
    outcome = ended(two, "other = DDP(nn.Linear(1, 1))\nsky.rejoin(other)", on_error="wait")
    assert "rank 0 kept 1 model, and none has these parameters" in outcome.done[1].failure.message
    prepared = (
        "class Prepared:\n    def __init__(self, held): self.optimizer = held\n"
        "    def state_dict(self): return self.optimizer.state_dict()\n"
        "    load_state_dict = None\n"
        "Prepared.__module__ = 'accelerate.optimizer'\n"
    )
    rejoin = f"{prepared}taken = sky.rejoin(ddp, Prepared(fast), slow)\n"
    taken = f"{make}\n{rejoin}t.steps = t.made()[1]\n"
    assert values(two, f"{taken}taken, t.made()") == [(True, (4, 4, 4))] * 2
    # Losses of the steps before the death were with the ranks.
    does(two, "t.losses.update((n, alone(4)[0][n]) for n in range(4))\nt.run(8)")
    assert max(max(each) for each in values(two, "apart(t, 8)")) < 1e-5
    assert values(two, "sky.rejoin(ddp, fast, slow)") == [False, False], "it is taken once"


@pytest.mark.extensive
def test_state_that_outlives_two_deaths_goes_to_a_machine_where_it_is_not(two):
    make = "t = Training(DDP(net()))\nmine = t.model, t.optimizer, t.schedule\n"
    two.restart(lambda _: None)
    does(two, f"{TRAINING}{make}t.run(4)")
    assert ended(two, "if rank: os.kill(os.getpid(), 9)\nt.run(6)").kept
    does(two, TRAINING + make)
    assert ended(two, "if rank: os.kill(os.getpid(), 9)\ndist.barrier()").kept
    elsewhere = (
        "from pathlib import Path\nfrom skyward_nb.runtime import kept_state\n"
        "if rank: kept_state.here = kept_state.KeptState(Path('/nowhere'))\n"
    )
    taken = "taken = sky.rejoin(*mine)\nt.steps = t.made()[1]\n"
    assert (
        values(two, f"{TRAINING}{make}{elsewhere}{taken}taken, t.made()") == [(True, (4, 4, 4))] * 2
    )
    does(two, "t.losses.update((n, alone(4)[0][n]) for n in range(4))\nt.run(8)")
    assert max(max(each) for each in values(two, "apart(t, 8)")) < 1e-5
    assert values(two, "sky.rejoin(*mine)") == [False, False]


@pytest.mark.extensive
def test_what_is_lost_of_a_sharded_model_is_said_once(two):
    two.restart(lambda _: None)
    does(two, TRAINING + "f = Training(sharded())\nf.run(2)")
    outcome = ended(two, "if rank: os.kill(os.getpid(), 9)\nf.run(3)")
    assert "load its last checkpoint" in outcome.kept
    does(two, TRAINING + "f = Training(sharded())")
    outcome = ended(two, "sky.rejoin(f.model, f.optimizer)")
    assert errors(outcome) == {"RuntimeError"}
    assert "parts of this fully sharded model" in outcome.done[1].failure.message
    assert values(two, "sky.rejoin(f.model, f.optimizer)") == [False, False]


@pytest.mark.extensive
def test_after_a_restart_nothing_is_taken(two):
    does(two, TRAINING + "ddp = DDP(net())\nt = Training(ddp)\nt.run(2)")
    assert ended(two, "if rank: os.kill(os.getpid(), 9)\nt.run(3)").kept
    two.restart(lambda _: None)
    assert values(two, TRAINING + "ddp = DDP(net())\nsky.rejoin(ddp)") == [False, False]
