"""Places of ranks, and the variables that tell them."""

import msgspec

from skyward_nb.words.accelerators import Accelerator
from skyward_nb.words.info import InstanceInfo, Peer, as_seen, environment, place
from skyward_nb.words.spec import PoolSpec

TORCHRUN = {
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
    "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT",
    "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
}  # fmt: skip
SKYPILOT = {
    "SKYPILOT_NODE_IPS", "SKYPILOT_NUM_NODES", "SKYPILOT_NODE_RANK",
    "SKYPILOT_NUM_GPUS_PER_NODE", "SKYPILOT_TASK_ID",
}  # fmt: skip
TWO = (Peer(0, "10.0.0.1"), Peer(1, "10.0.0.2"))


def test_every_rank_has_its_place():
    spec = PoolSpec(nodes=2, ranks_per_node=3)
    infos = place(spec, TWO, 29500, "job", 4)
    assert [info.rank for info in infos] == list(range(6))
    assert [(info.node, info.worker, info.local_rank) for info in infos] == [
        (0, 0, 0), (0, 1, 1), (0, 2, 2), (1, 0, 0), (1, 1, 1), (1, 2, 2),
    ]  # fmt: skip
    assert [info.is_head for info in infos] == [True] + [False] * 5
    assert {info.head_addr for info in infos} == {"10.0.0.1"}
    assert [peer.address for peer in infos[5].peers] == ["10.0.0.1", "10.0.0.2"]
    assert {(i.world_size, i.total_nodes, i.generation, i.accelerators) for i in infos} == {
        (6, 2, 4, 0)
    }


def test_environment_is_torchruns_and_skypilots():
    info = place(PoolSpec(nodes=2), TWO, 29500, "job", 1)[1]
    env = environment(info)
    assert TORCHRUN | SKYPILOT | {"NODE_RANK", "COMPUTE_POOL"} == set(env)
    assert "TORCHELASTIC_USE_AGENT_STORE" not in env
    assert (env["RANK"], env["NODE_RANK"], env["MASTER_PORT"]) == ("1", "1", "29500")
    assert env["SKYPILOT_NODE_IPS"] == "10.0.0.1\n10.0.0.2"
    assert msgspec.json.decode(env["COMPUTE_POOL"], type=InstanceInfo) == info


def test_simulated_accelerators_are_counted_as_asked_but_are_not_there():
    spec = PoolSpec(accelerator=Accelerator("A100", 4), simulate="yes")
    infos = place(spec, (Peer(0, "127.0.0.1"),), 1, "job", 1)
    assert len(infos) == 4
    assert (infos[0].accelerators, infos[0].accelerator) == (4, "A100")
    assert environment(infos[0])["SKYPILOT_NUM_GPUS_PER_NODE"] == "4"
    assert infos[0].simulated
    assert infos[0].real_accelerators == 0


def test_nodes_that_stand_alone_are_worlds_of_their_own():
    peers = (
        Peer(0, "10.0.0.1", {"rendezvous": (29511, 29512)}),
        Peer(1, "10.0.0.2", {"rendezvous": (29521, 29522)}),
    )
    spec = PoolSpec(nodes=2, ranks_per_node=2, cluster=False)
    infos = place(spec, peers, 29500, "job", 1)
    assert [info.rank for info in infos] == [0, 1, 2, 3]
    seen = [as_seen(info) for info in infos]
    assert [(i.rank, i.world_size, i.local_rank, i.workers_per_node) for i in seen] == [
        (0, 2, 0, 2), (1, 2, 1, 2), (0, 2, 0, 2), (1, 2, 1, 2),
    ]  # fmt: skip
    assert [(i.node, i.total_nodes, i.pool_rank) for i in seen] == [
        (0, 2, 0), (0, 2, 1), (1, 2, 2), (1, 2, 3),
    ]  # fmt: skip
    assert [(i.head_addr, i.head_port) for i in seen] == [
        ("10.0.0.1", 29511), ("10.0.0.1", 29511), ("10.0.0.2", 29521), ("10.0.0.2", 29521),
    ]  # fmt: skip
    assert not any(info.is_head for info in (*infos, *seen))
    assert [as_seen(info) for info in seen] == seen
    assert [info.pool_rank for info in infos] == [0, 1, 2, 3]

    env = environment(infos[3])
    assert msgspec.json.decode(env["COMPUTE_POOL"], type=InstanceInfo) == seen[3]
    own = {name: env[name] for name in TORCHRUN & {*env} if name.endswith(("RANK", "SIZE"))}
    assert own == {
        "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "ROLE_RANK": "1", "ROLE_WORLD_SIZE": "2",
    }  # fmt: skip
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("10.0.0.2", "29521")
    assert (env["NODE_RANK"], env["SKYPILOT_NODE_RANK"], env["SKYPILOT_NUM_NODES"]) == (
        "1", "1", "2",
    )  # fmt: skip


def test_places_of_a_cluster_are_seen_as_they_are():
    for info in place(PoolSpec(nodes=2, ranks_per_node=2), TWO, 1, "job", 1):
        assert as_seen(info) is info
        assert info.pool_rank == info.rank
