"""Nodes that stand alone, `sky.Options(cluster=False)`: what code on their ranks sees and can do."""

import importlib.util

import pytest
from pools import request, values, why_failed

from skyward_nb.pickling import reducers
from skyward_nb.pickling.payload import unpack
from skyward_nb.protocol.events import Metric, Metrics, Progress
from skyward_nb.runtime import keras_alone
from skyward_nb.words.info import COMPUTE_POOL, Peer, environment, place
from skyward_nb.words.spec import PoolSpec

ALONE = {"nodes": 2, "ranks_per_node": 2, "cluster": False}


@pytest.fixture
def alone(lend):
    return lend(**ALONE)


def test_code_sees_the_world_of_its_node(alone):
    seen = values(
        alone,
        "import os\n"
        "import skyward_nb as sky\n"
        "i = sky.instance_info()\n"
        "(i.node, i.total_nodes, i.rank, i.world_size, sky.is_head(), sky.shard([0, 1, 2]),\n"
        " sky.data_place(), os.environ['RANK'], os.environ['WORLD_SIZE'])",
    )
    assert seen == [
        (0, 2, 0, 2, False, [0, 2], (0, 2), "0", "2"),
        (0, 2, 1, 2, False, [1], (1, 2), "1", "2"),
        (1, 2, 0, 2, False, [0, 2], (0, 2), "0", "2"),
        (1, 2, 1, 2, False, [1], (1, 2), "1", "2"),
    ]
    ports = values(alone, "import os; os.environ['MASTER_ADDR'], os.environ['MASTER_PORT']")
    assert ports[0] == ports[1]
    assert ports[2] == ports[3]
    assert ports[0] != ports[2]


def test_what_ranks_tell_is_theirs_in_the_whole_pool(alone):
    told = []
    body = "import skyward_nb as sky\nfor _ in sky.progress(range(2)): sky.log(loss=1)"
    alone.run(request(alone, body), told.append)
    for kind in (Metric | Metrics, Progress):
        assert {event.rank for event in told if isinstance(event, kind)} == {0, 1, 2, 3}


def test_what_needs_a_group_says_why_there_is_none(alone):
    body = (
        "import skyward_nb as sky\ntry:\n    {call}\nexcept RuntimeError as e:\n    w = str(e)\nw"
    )
    for call in ("sky.barrier()", "sky.mesh()"):
        for word in values(alone, body.format(call=call)):
            assert word.startswith(
                f"{call} needs a process group, and the nodes of this pool stand"
            )


def test_the_only_rank_of_a_node_waits_for_none(lend):
    pool = lend(nodes=2, cluster=False)
    assert values(pool, "import skyward_nb as sky; sky.barrier()\n1") == [1, 1]


@pytest.mark.parametrize("ranks", [1, 2])
def test_keras_trains_apart_on_the_ranks_of_a_node_alone(monkeypatch, ranks):
    spec = PoolSpec(nodes=2, ranks_per_node=ranks, cluster=False)
    peers = (Peer(0, "127.0.0.1"), Peer(1, "127.0.0.1"))
    place_text = environment(place(spec, peers, 1, "job", 1)[-1])[COMPUTE_POOL]
    monkeypatch.setenv(COMPUTE_POOL, place_text)
    monkeypatch.setattr(reducers, "running", frozenset(range(spec.world_size)))
    assert keras_alone._together() == tuple(range(ranks, 2 * ranks))
    monkeypatch.setenv("SKYWARD_KERAS_AVERAGE", "no")
    assert keras_alone._together() == ()


@pytest.mark.extensive
@pytest.mark.torch
@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="no PyTorch here")
def test_code_may_form_a_group_of_its_nodes_ranks(alone):
    body = (
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "x = torch.tensor([float(dist.get_rank() + 1)])\n"
        "dist.all_reduce(x)\n"
        "dist.destroy_process_group()\n"
        "x.item()"
    )
    outcome = alone.run(request(alone, body), lambda _: None)
    assert not outcome.failed, why_failed(outcome)
    assert [unpack(end.value, alone.store) for end in outcome.done.values()] == [3.0] * 4
