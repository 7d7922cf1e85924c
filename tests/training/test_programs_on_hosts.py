"""PyTorch's examples in shape on two hosts, whose networks and folders are their own; and by SkyPilot's task files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cluster.notebooks import nothing_left
from later import needs
from terminals import sky
from training.conftest import losses

from skyward_nb.words.hosts import SSHAccess, parse_hosts
from skyward_nb.words.image import Image

pytestmark = [
    pytest.mark.torch,
    needs("torch"),
    pytest.mark.extensive,
    pytest.mark.timeout(300),
]
NODES = "--nnodes=2 --nproc-per-node=2"
HOW = ("--rdzv-backend=static", "--rdzv-backend=c10d")


@pytest.fixture
def on_hosts(hosts, notebook, program):
    """The outcome of a line, in the folder of the example, on a pool of two hosts with one rank each."""

    def run(*lines: str, options: str = "framework=none", folder=None):
        with notebook(hosts(2)) as book:
            book.here(f"os.chdir({str(folder or program('min_gpt'))!r})")
            for line in lines:
                whole = line.format(
                    options=f"{book.options} trust_local_users ranks_per_node=1 {options}"
                )
                ran = book.kernel.run(whole, 240)
                yield ran
            book.here("os.chdir('/')")

    return run


def test_a_killed_worker_goes_on_from_the_snapshot_of_its_host(on_hosts, alone):
    lines = [
        f"%sky torchrun {{options}} --nnodes=2 --nproc-per-node=2 --max-restarts=1 {how} main.py "
        f"fault.epoch=2 trainer.snapshot={name}.pt"
        for name, how in (("static", ""), ("c10d", "--rdzv-backend=c10d"))
    ]
    wanted = alone("min_gpt")
    for ran in on_hosts(*lines):
        assert ran.status == "ok", f"{ran.traceback}{ran.picture}"
        assert all(f"resumed at epoch 2 as rank {rank}" in ran.picture for rank in range(4))
        found = losses(ran.picture)
        assert [*found] == [0, 1, 2, 3] and found[3] < found[0]
        assert found == pytest.approx(wanted, abs=1e-3)


def test_a_script_trains_over_both_hosts(on_hosts, alone):
    (ran,) = on_hosts("%sky run {options} main.py")
    assert ran.status == "ok", ran.traceback
    assert losses(ran.picture) == pytest.approx(alone("min_gpt"), abs=1e-3)


@pytest.mark.parametrize("how", HOW)
def test_a_sharded_model_goes_on_from_checkpoints_that_were_fetched(on_hosts, program, alone, how):
    """A host has the parts of its own ranks. They are brought here, and go to both with the folder."""
    first, then = on_hosts(
        *(
            f"%sky torchrun {{options}} fetch=checkpoints {NODES} {how} main.py {epochs}"
            for epochs in (3, 5)
        ),
        folder=program("fsdp2"),
    )
    for ran in (first, then):
        assert ran.status == "ok", f"{ran.traceback}{ran.picture}"
    assert "resumed" not in first.picture and "resumed at epoch 3" in then.picture
    found = losses(first.picture), losses(then.picture)
    assert ([*found[0]], [*found[1]]) == ([0, 1, 2], [3, 4])
    assert found[0] | found[1] == pytest.approx(alone("fsdp2", "5"), abs=1e-3)


@pytest.mark.parametrize("ways", ["2", "4"])
def test_tensors_are_cut_within_each_host_and_over_both(on_hosts, program, alone, ways):
    lines = (f"%sky torchrun {{options}} {NODES} {how} main.py 3 {ways}" for how in HOW)
    wanted = alone("tensor_parallel", "3", ways)
    assert [*wanted] == [0, 1, 2] and wanted[2] < wanted[0]
    for ran in on_hosts(*lines, folder=program("tensor_parallel")):
        assert ran.status == "ok", f"{ran.traceback}{ran.picture}"
        assert losses(ran.picture) == pytest.approx(wanted, abs=1e-3)


@pytest.fixture
def town(hosts):
    """Two hosts, which are there before `make` looks for what a test leaves: they stay for the next one."""
    return hosts(2)


@pytest.mark.parametrize("how", HOW)
def test_from_a_shell_on_a_pool_that_was_left(town, make, program, alone, how):
    folder = program("min_gpt")
    access = SSHAccess(hosts=parse_hosts(town.names), config=str(town.config))
    here = Image(interpreter=sys.executable)
    make(name="train", provider="ssh", ssh=access, image=here, trust_local_users=True).leave()
    ran = sky(
        "torchrun", "pool=train", "fetch=snapshot.pt", *NODES.split(), how, "--max-restarts=1",
        "main.py", "fault.epoch=2", folder=folder, timeout=240,
    )  # fmt: skip
    assert ran.code == 0, ran.stderr
    assert all(f"resumed at epoch 2 as rank {rank}" in ran.stdout for rank in range(4))
    assert losses(ran.stdout) == pytest.approx(alone("min_gpt"), abs=1e-3)
    assert (folder / "snapshot.pt").exists()
    down = sky("down", "train")
    assert down.code == 0, down.stderr
    nothing_left(town)


# ── the task files of SkyPilot's page, but that the example is there instead of cloned ──

TASK = """\
name: minGPT-ddp

resources:
    cpus: 4+
    accelerators: L4:2

num_nodes: 2

setup: |
    test -f examples/mingpt/main.py

run: |
    cd examples/mingpt
    export LOGLEVEL=INFO

    MASTER_ADDR=$(echo "$SKYPILOT_NODE_IPS" | head -n1)
    echo "Starting distributed training, head node: $MASTER_ADDR"

    torchrun \\
    --nnodes=$SKYPILOT_NUM_NODES \\
    --nproc_per_node=$SKYPILOT_NUM_GPUS_PER_NODE \\
"""
TASKS = {
    "train.yaml": """\
    --master_addr=$MASTER_ADDR \\
    --master_port=8008 \\
    --node_rank=${SKYPILOT_NODE_RANK} \\
    main.py
""",
    "train-rdzv.yaml": """\
    --rdzv_backend=c10d \\
    --rdzv_endpoint=$MASTER_ADDR:29500 \\
    --rdzv_id $SKYPILOT_TASK_ID \\
    main.py
""",
}


@pytest.fixture
def tasks(program) -> Path:
    """A folder with both files, and the example where they look for it."""
    folder = program("min_gpt", "examples/mingpt").parent.parent
    for name, last in TASKS.items():
        (folder / name).write_text(f"{TASK}{last}")
    return folder


@needs("yaml")
@pytest.mark.parametrize("name", TASKS)
def test_the_task_files_of_the_page_on_hosts(on_hosts, tasks, alone, name):
    (ran,) = on_hosts(f"%sky run {{options}} simulate {name}", options="", folder=tasks)
    assert ran.status == "ok", f"{ran.traceback}{ran.picture}"
    assert losses(ran.picture) == pytest.approx(alone("min_gpt"), abs=1e-3)


@needs("yaml")
@pytest.mark.parametrize("name", TASKS)
def test_the_task_files_of_the_page_on_this_machine(no_leaks, tasks, alone, name):
    ran = sky("run", "simulate", name, folder=tasks, timeout=200)
    assert ran.code == 0, ran.stderr
    assert losses(ran.stdout) == pytest.approx(alone("min_gpt"), abs=1e-3)
