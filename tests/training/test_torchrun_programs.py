"""PyTorch's examples in shape under `skyward-nb torchrun`: 2 x 2 workers train as one process does, and go on when killed."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from later import needs
from terminals import begun, sky
from training.conftest import losses
from waiting import until

from skyward_nb.pool import registry

pytestmark = [pytest.mark.torch, needs("torch")]
NODES = ("--nnodes=2", "--nproc-per-node=2")
C10D = "--rdzv-backend=c10d"


@pytest.fixture(autouse=True)
def temporary_folders_go(monkeypatch):
    """Also those of agents and workers that were killed; others make such folders elsewhere meanwhile."""
    temporary = Path(tempfile.mkdtemp(prefix="sky-"))
    monkeypatch.setenv("TMPDIR", str(temporary))
    yield
    left = [path for word in ("torchrun-*", "torchelastic_*") for path in temporary.glob(word)]
    shutil.rmtree(temporary)
    assert not left


@pytest.mark.extensive
@pytest.mark.parametrize("how", ["--rdzv-backend=static", C10D])
def test_a_killed_worker_goes_on_from_its_snapshot(no_leaks, program, alone, how):
    folder = program("min_gpt")
    ran = sky(
        "torchrun", *NODES, "--max-restarts=3", how, "main.py", "fault.epoch=2",
        folder=folder, timeout=200,
    )  # fmt: skip
    assert ran.code == 0, ran.stderr
    assert "resumed at epoch 2" in ran.stdout
    assert (folder / "snapshot.died").exists()
    found = losses(ran.stdout)
    assert [*found] == [0, 1, 2, 3] and found[3] < found[0]
    assert found == pytest.approx(alone("min_gpt"), abs=1e-3)


@pytest.mark.extensive
@pytest.mark.parametrize("how", ["--rdzv-backend=static", C10D])
@pytest.mark.parametrize(
    ("name", "words"),
    [("fsdp2", ("3",)), ("tensor_parallel", ("3", "2")), ("tensor_parallel", ("3", "4"))],
)
def test_parts_of_a_model_train_as_the_whole_does(no_leaks, program, alone, name, words, how):
    folder = program(name)
    ran = sky("torchrun", *NODES, how, "main.py", *words, folder=folder, timeout=200)
    assert ran.code == 0, ran.stderr
    assert losses(ran.stdout) == pytest.approx(alone(name, *words), abs=1e-3)
    if name == "fsdp2":
        ran = sky("torchrun", *NODES, how, "main.py", "5", folder=folder, timeout=200)
        assert "resumed at epoch 3" in ran.stdout
        assert [*losses(ran.stdout)] == [3, 4]


@pytest.mark.extensive
def test_a_lost_node_is_gone_on_without(no_leaks, program):
    """Scale-in: node 1 dies with its agent and its workers; the other one goes on from the snapshot."""
    folder = program("min_gpt")
    text = (folder / "trainer.py").read_text()
    text = text.replace("os.kill(os.getpid(), signal.SIGKILL)", "signal.pause()")
    text = text.replace("dist.get_rank() == 1", "os.environ['GROUP_RANK'] == '1'")
    (folder / "trainer.py").write_text(text)
    conf = "--rdzv-conf=last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=2"
    with begun(
        "torchrun", "--nnodes=1:2", "--nproc-per-node=2", "--max-restarts=3", C10D, conf,
        "main.py", "fault.epoch=2", folder=folder,
    ) as running:  # fmt: skip
        until((folder / "snapshot.died").exists, 120)
        (entry,) = registry.entries()
        os.kill(until(lambda: registry.condition(entry)).pids[1], signal.SIGKILL)
        out, err = running.communicate(timeout=150)
    assert running.returncode == 0, err
    assert "resumed at epoch 2" in out and [*losses(out)] == [0, 1, 2, 3]
    assert "rank 1 killed by SIGKILL" in err and "the others went on without" in err
