"""Which kept state a model takes, which is handed on, and that none is loaded that is another one's."""

from __future__ import annotations

import importlib.util
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from skyward_nb.pool.generations import Generations
from skyward_nb.protocol.commands import KeepState, PluginUse
from skyward_nb.protocol.events import StateKept
from skyward_nb.runtime import kept_state
from skyward_nb.runtime.kept_state import (
    KeptEntry,
    KeptState,
    PresentModel,
    choose,
    worth_keeping,
)


def needs_torch(test):
    lacks = not importlib.util.find_spec("torch")
    return pytest.mark.torch(pytest.mark.skipif(lacks, reason="PyTorch is not installed")(test))


G, D = {"g": (2, 2)}, {"d": (3,)}


def entry(shapes=G, made=2, rank=0, number=0, **more):
    return KeptEntry(made, rank, number, shapes, ("SGD",), **more)


# ── what to keep, and what to take ──────────────────────────────────────────────────────

ANEW, WENT_ON = PresentModel(G), PresentModel(G, has_gone_on=True)
MAY_HAVE, OTHER = PresentModel(G, may_have=True), PresentModel(D, has_gone_on=True)


@pytest.mark.parametrize(
    ("present", "untaken", "keep", "over"),
    [
        ([ANEW], [], [0], []),
        ([ANEW], [entry()], [], []),
        ([WENT_ON], [entry()], [0], [entry()]),
        ([MAY_HAVE], [entry()], [0], []),
        ([WENT_ON, ANEW], [entry()], [0], []),
        ([OTHER, ANEW], [entry()], [0], []),
    ],
    ids=["first", "made anew", "went on without", "unknown", "one of equals", "one of a GAN"],
)
def test_what_was_only_made_anew_takes_no_place(present, untaken, keep, over):
    assert worth_keeping(present, untaken) == (keep, over)


def test_state_that_was_trained_is_taken_before_what_was_made_anew_on_another_machine():
    old, new = entry(rank=0, made=2), entry(rank=1, made=3, is_current=False)
    assert choose([old, new], G, ["SGD"]) == (old, [old, new])


def test_equal_models_are_taken_in_their_order():
    first, second = entry(number=0), entry(number=1)
    assert choose([first, second], G, ["SGD"]) == (first, [first])


def test_state_of_two_deaths_is_refused():
    both = [entry(made=2), entry(made=3, rank=1)]
    error, over = choose(both, G, ["SGD"])
    assert isinstance(error, RuntimeError) and "at two deaths" in str(error)
    assert over == both


def test_what_is_lost_is_said_before_what_has_its_shapes_and_is_older():
    old, lost = entry(), entry(made=3, why="too large")
    error, over = choose([old, lost], G, [])
    assert str(error) == "too large" and over == [lost, old]
    error, over = choose([old, entry({}, why="sharded")], D, [])
    assert str(error) == "sharded" and len(over) == 1


def test_a_model_or_an_optimizer_that_was_not_kept_is_named():
    assert "none has these parameters" in str(choose([entry()], D, [])[0])
    error, over = choose([entry()], G, ["Adam"])
    assert "kept SGD; given were Adam" in str(error) and not over


# ── the agent's part ────────────────────────────────────────────────────────────────────


def test_an_agent_hands_on_what_nobody_took_and_removes_the_rest(tmp_path):
    kept = KeptState(tmp_path)
    kept.begin(1)
    kept.write(entry(why="lost"))
    folder = tmp_path / "kept-state"
    (folder / "part-7").touch()  # its writer was killed
    (folder / "2-0-9.pt").touch()
    kept.hand_on(2)
    kept.begin(2)
    assert kept.entries() == [entry(why="lost")]
    assert [each.name for each in folder.iterdir()] == ["2-0-0.json"]
    kept.begin(3)  # restarted
    assert not list(folder.iterdir())


def test_what_another_rank_takes_meanwhile_is_not_listed(tmp_path, monkeypatch):
    kept = KeptState(tmp_path)
    kept.write(entry(number=0), entry(number=1))
    read = Path.read_bytes

    def late(path):
        kept.remove([entry(number=1)])
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", late)
    assert [each.number for each in kept.entries()] == [0]


def test_all_agents_hand_on_though_one_rank_is_asked():
    told = []
    lines = SimpleNamespace(
        links=["a", "b"],
        tell=lambda link, command: told.append((link, command)),
        send=lambda command: told.append(("its own", command)),
        pump=lambda *_, **__: iter([StateKept(3, 0), StateKept(3, 1, "kept")]),
    )
    state = SimpleNamespace(generation=2, ranks=(0, 1))
    generations = Generations(None, "p", lines, (PluginUse("torch", {}),), state)
    assert generations.keep_state(lambda _: None) == "kept"
    assert told == [
        ("a", KeepState(3, ())),
        ("b", KeepState(3, ())),
        ("its own", KeepState(3, (0,))),
        ("its own", KeepState(3, (1,))),
    ]


# ── ranks, in one process ───────────────────────────────────────────────────────────────


@pytest.fixture
def ranks(tmp_path, monkeypatch):
    """This process as the only rank of a group, and what is kept there."""
    import torch.distributed as dist

    here = KeptState(tmp_path)
    monkeypatch.setattr(kept_state, "here", here)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield here
    dist.destroy_process_group()


def made(rate=0.1):
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from skyward_nb.plugins import torch_models

    ddp = DistributedDataParallel(nn.Linear(2, 1))
    torch_models.remember(ddp)
    return ddp, torch.optim.Adam(ddp.parameters(), lr=rate)


def trained(ddp, optimizer):
    import torch

    from skyward_nb.plugins import torch_models

    ddp(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    torch_models.note_step(optimizer)
    return ddp.module.weight.detach().clone()


@needs_torch
def test_a_second_death_before_models_rejoin_keeps_the_trained_state(ranks, tmp_path):
    import torch

    from skyward_nb.plugins.torch_rescue import rescue
    from skyward_nb.runtime.rejoin import rejoin

    ddp, optimizer = made()
    weight = trained(ddp, optimizer)
    assert "sky.rejoin(model, optimizer)" in rescue(tmp_path, 2, lambda _: "")
    del ddp, optimizer
    ddp, optimizer = made()
    assert rescue(tmp_path, 3, lambda _: ""), "made anew, and another rank dies"
    assert [each.made for each in ranks.entries()] == [2]
    compiled = torch.nn.Module()  # as torch.compile makes one
    compiled._orig_mod = ddp
    assert rejoin(compiled, optimizer)
    assert torch.equal(ddp.module.weight, weight)
    assert not rejoin(ddp, optimizer) and not list((tmp_path / "kept-state").iterdir())
    # The memory of the file is free.
    assert "kept-state" not in Path("/proc/self/maps").read_text()
    with pytest.raises(TypeError, match="takes a model of torch"):
        rejoin(threading.Event())


@needs_torch
def test_state_that_cannot_be_read_stays(ranks, tmp_path, monkeypatch):
    from skyward_nb.plugins.torch_rescue import rescue
    from skyward_nb.runtime.rejoin import rejoin

    ddp, optimizer = made()
    trained(ddp, optimizer)
    rescue(tmp_path, 2, lambda _: "")

    def lacks(_):
        raise AttributeError("Can't get attribute 'Mine'")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="run its cell") as said:
        patch.setattr(ranks, "read", lacks)
        rejoin(ddp, optimizer)
    assert "'Mine'" in str(said.value) and len(ranks.entries()) == 1
    assert rejoin(ddp, optimizer)


@needs_torch
def test_a_model_over_some_of_the_ranks_is_not_kept(ranks, tmp_path, monkeypatch):
    from skyward_nb.plugins import torch_rescue
    from skyward_nb.runtime.rejoin import rejoin

    ddp, optimizer = made()
    trained(ddp, optimizer)
    monkeypatch.setattr(
        torch_rescue, "instance_info", lambda: SimpleNamespace(rank=0, world_size=2)
    )
    assert "over some of the ranks only" in torch_rescue.rescue(tmp_path, 2, lambda _: "")
    with pytest.raises(RuntimeError, match="over some of the ranks only"):
        rejoin(ddp, optimizer)
    assert not ranks.entries()


@needs_torch
def test_without_a_process_group_there_is_nothing_to_rejoin(tmp_path, monkeypatch):
    from skyward_nb.runtime.rejoin import rejoin

    here = KeptState(tmp_path)
    monkeypatch.setattr(kept_state, "here", here)
    assert not rejoin(object())
    here.write(entry(why="lost"))
    with pytest.raises(RuntimeError, match="has no process group"):
        rejoin(object())


@needs_torch
def test_state_travels_tensor_by_tensor(ranks):
    import torch

    from skyward_nb.runtime import state_broadcast

    state = {
        "half": torch.ones(3, 2, dtype=torch.bfloat16).t(),
        "none": torch.empty(0),
        "mask": torch.tensor([True, False]),
        "others": [("Adam", {"step": torch.tensor(4.0), "betas": (0.9, 0.99)})],
    }
    sent = state_broadcast.Broadcast(0, state)
    assert len(sent._data) < 1000
    found = sent.state()
    for name in ("half", "none", "mask"):
        assert torch.equal(found[name], state[name])
    assert found["others"][0][1]["step"] == 4
    with pytest.raises(TypeError, match="cannot be sent"):
        state_broadcast.Broadcast(0, {"lock": threading.Lock()})
