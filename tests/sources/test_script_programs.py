"""What scripts of the guides find on ranks: SkyPilot's variables, and a mesh that stands on the line."""

from __future__ import annotations

import json

import pytest
from later import needs
from terminals import said, sky


def run(folder, text, *words):
    """What a script prints, by lines, with the ranks that do."""
    (folder / "run_training.py").write_text(text)
    ran = sky("run", *words, "run_training.py", folder=folder)
    assert ran.code == 0, ran.stderr
    return said(ran.stdout)


def test_the_variables_of_skypilot(no_leaks, tmp_path):
    """Read as the pages do: the first of NODE_IPS is the head."""
    found = run(
        tmp_path,
        "import json, os\n"
        "names = 'NODE_IPS NUM_NODES NODE_RANK NUM_GPUS_PER_NODE TASK_ID'.split()\n"
        "print(json.dumps([os.environ[f'SKYPILOT_{name}'] for name in names]))\n"
        "head = os.environ['SKYPILOT_NODE_IPS'].splitlines()[0]\n"
        "assert head == os.environ['MASTER_ADDR'], head\n",
        "nodes=2",
    )
    (first, second) = sorted(map(json.loads, found), key=lambda each: each[2])
    assert first[:4] == ["127.0.0.1\n127.0.0.1", "2", "0", "0"]
    assert second[2] == "1"
    assert first[4] == second[4] != ""


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
