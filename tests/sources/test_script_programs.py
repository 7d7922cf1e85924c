"""What scripts of the guides find on ranks: SkyPilot's variables, and a mesh that stands on the line."""

from __future__ import annotations

import json

import pytest
from free_ports import free_port
from later import needs
from terminals import said, sky


def run(folder, text, *words):
    """What a script prints, by lines, with the ranks that do."""
    (folder / "run_training.py").write_text(text)
    ran = sky("run", *words, "run_training.py", folder=folder)
    assert ran.code == 0, ran.stderr
    return said(ran.stdout)


def test_the_variables_of_skypilot_and_gpus_counted_as_asked(no_leaks, tmp_path):
    """Read as the pages do: the first of NODE_IPS is the head. Four nodes with four GPUs each are one line."""
    found = run(
        tmp_path,
        "import json, os\n"
        "names = 'NODE_IPS NUM_NODES NODE_RANK NUM_GPUS_PER_NODE TASK_ID'.split()\n"
        "found = [os.environ[f'SKYPILOT_{name}'] for name in names]\n"
        "print(json.dumps([*found, os.environ['WORLD_SIZE']]))\n"
        "head = os.environ['SKYPILOT_NODE_IPS'].splitlines()[0]\n"
        "assert head == os.environ['MASTER_ADDR'], head\n",
        "nodes=4",
        "accelerator=L4:4",
        "cpus=8+",
        "simulate",
    )
    told = {tuple(json.loads(line)): ranks for line, ranks in found.items()}
    (task,) = {each[4] for each in told}
    assert task
    addresses = "\n".join(["127.0.0.1"] * 4)
    assert told == {
        (addresses, "4", str(node), "4", task, "16"): list(range(4 * node, 4 * node + 4))
        for node in range(4)
    }


RUN = r"""
MASTER_ADDR=$(echo "$SKYPILOT_NODE_IPS" | head -n1)
torchrun --nnodes=$SKYPILOT_NUM_NODES --nproc_per_node=$SKYPILOT_NUM_GPUS_PER_NODE {how} main.py
"""
HOW = {
    "static": "--master_addr=$MASTER_ADDR --master_port={port} --node_rank=$SKYPILOT_NODE_RANK",
    "rdzv": "--rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:{port} --rdzv_id $SKYPILOT_TASK_ID",
}
"""The two ways in which a task file's `run:` starts a program of torch."""


@pytest.mark.torch
@pytest.mark.extensive
@needs("torch")
@pytest.mark.parametrize("how", HOW)
def test_torchrun_within_a_script_of_each_node(no_leaks, tmp_path, how):
    (tmp_path / "main.py").write_text(
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "total = torch.ones(1)\ndist.all_reduce(total)\n"
        "print(total.item(), os.environ['LOCAL_WORLD_SIZE'], flush=True)\n"
        "dist.destroy_process_group()\n"
    )
    block = RUN.format(how=HOW[how].format(port=free_port()))
    found = run(
        tmp_path,
        "import os, subprocess, sys\nfrom pathlib import Path\n"
        "path = f\"{Path(sys.executable).parent}:{os.environ['PATH']}\"\n"
        f"subprocess.run(['bash', '-ec', {block!r}], env=os.environ | {{'PATH': path}}, check=True)\n",
        "nodes=2",
        "accelerator=L4:2",
        "ranks_per_node=1",
        "simulate",
        "framework=none",
    )
    assert found["4.0 2"] == [0, 0, 1, 1] or found["4.0 2"] == [0, 1]


@needs("jax")
def test_a_script_that_joins_jax_by_itself(no_leaks, tmp_path):
    """Instead of a launcher for JAX: the place is known, and no option says that it is JAX."""
    found = run(
        tmp_path,
        "import jax\njax.distributed.initialize()\n"
        "print(jax.process_count(), jax.device_count(), jax.local_device_count())\n",
        "nodes=2",
    )
    assert found == {"2 2 1": [0, 1]}


@pytest.mark.torch
@pytest.mark.extensive
@needs("torch")
def test_a_script_with_a_mesh_on_its_line(no_leaks, tmp_path):
    found = run(
        tmp_path,
        "import sys\nimport torch.distributed as dist\nimport skyward_nb as sky\n"
        "mesh = sky.mesh()\n"
        "print(mesh.mesh_dim_names, mesh.shape, dist.is_initialized(), sys.argv[1:])\n",
        "accelerator=A100:2",
        "simulate",
        "framework=torch",
        'mesh=[[2,1],["fsdp","tp"]]',
    )
    assert found == {"('fsdp', 'tp') (2, 1) True []": [0, 1]}
