"""What a rank finds in its environment, beside what `torchrun` gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from kernels import ready
from later import needs

from skyward_nb.plugins.plugin_table import find_plugin
from skyward_nb.words.info import InstanceInfo, Peer

pytestmark = [
    pytest.mark.torch,
    needs("torch"),
]

LEFT_OUT = {
    "TORCHELASTIC_USE_AGENT_STORE": "rank 0 would not host the store",
    "TORCHELASTIC_ERROR_FILE": "where torchrun's agent looks for a worker's exception",
    "TORCHELASTIC_SIGNALS_TO_HANDLE": "for torchrun's agent itself",
}
OF_THE_MEETING = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"}
DUMP = (
    "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1] + os.environ['RANK'], 'w'))"
)


@pytest.fixture(scope="module")
def notebook():
    with ready(
        "%%sky_remote ranks_per_node=2 framework=torch\nimport json, os\nimport skyward_nb as sky"
    ) as running:
        yield running


@pytest.fixture(scope="module")
def torchruns(tmp_path_factory):
    """What torchrun sets for each of two workers, beyond what it was started with."""
    folder = tmp_path_factory.mktemp("torchrun")
    script = folder / "dump.py"
    script.write_text(DUMP)
    # As bare as the agent's: OMP_NUM_THREADS is set where it is not set yet.
    given = {"PATH": os.environ["PATH"], "HOME": str(folder), "LC_CTYPE": "C.UTF-8"}
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
         str(script), f"{folder}/env"],
        env=given, check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    found = [json.loads((folder / f"env{rank}").read_text()) for rank in range(2)]
    return [{name: each[name] for name in each if name not in given} for each in found]


def on_ranks(notebook, code):
    """The value on each rank, by way of JSON."""
    ran = notebook.run(f"%%sky_remote out=told\njson.dumps({code})")
    assert ran.status == "ok", ran.traceback
    return [json.loads(text) for text in eval(notebook.run("list(told)").result)]


@pytest.mark.extensive
def test_all_that_torchrun_sets(notebook, torchruns):
    ours = on_ranks(notebook, "dict(os.environ)")
    for rank, (mine, theirs) in enumerate(zip(ours, torchruns, strict=True)):
        assert theirs["RANK"] == str(rank)
        assert set(theirs) - set(mine) == set(LEFT_OUT)
        same = set(theirs) - set(LEFT_OUT) - OF_THE_MEETING
        assert {name: mine[name] for name in same} == {name: theirs[name] for name in same}
        assert all(mine[name] for name in OF_THE_MEETING)


def test_the_rest_of_the_table(notebook):
    for rank, env in enumerate(on_ranks(notebook, "dict(os.environ)")):
        assert env["MASTER_ADDR"] == env["SKYPILOT_NODE_IPS"] == "127.0.0.1"
        assert (env["NODE_RANK"], env["SKYPILOT_NODE_RANK"], env["SKYPILOT_NUM_NODES"]) == (
            "0", "0", "1",
        )  # fmt: skip
        assert env["SKYPILOT_NUM_GPUS_PER_NODE"] == "0"
        assert env["SKYPILOT_TASK_ID"] == env["TORCHELASTIC_RUN_ID"]
        assert json.loads(env["COMPUTE_POOL"])["rank"] == rank
        assert env["GLOO_SOCKET_IFNAME"] == "lo"


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_nccl_is_kept_to_the_interface_that_others_reach(framework):
    peers = (Peer(0, "10.0.0.11", interface="eth0"), Peer(1, "10.0.0.12", interface="eno1"))
    plugin = find_plugin(framework)
    there = InstanceInfo(node=1, total_nodes=2, accelerators=8, peers=peers)
    assert plugin.env(there, {})["NCCL_SOCKET_IFNAME"] == "=eno1"
    assert "NCCL_SOCKET_IFNAME" not in plugin.env(InstanceInfo(accelerators=8), {})
