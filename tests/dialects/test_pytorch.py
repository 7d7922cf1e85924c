"""Programs in the shape of PyTorch's own examples for GPUs run unchanged on ranks that simulate them."""

from __future__ import annotations

from pathlib import Path

import pytest
from later import needs
from terminals import said, sky

PROGRAMS = Path(__file__).parent / "pytorch"

pytestmark = [needs("torch"), pytest.mark.torch, pytest.mark.timeout(240)]


def run(folder, line, program, *words):
    ran = sky("run", *line.split(), str(PROGRAMS / program), *words, folder=folder)
    assert ran.code == 0, ran.stderr
    return said(ran.stdout), ran.stderr


def of_ranks(end):
    return {end.format(rank): [rank] for rank in (0, 1)}


GPT = "rank {}: it learns True, test loss is finite True"
SHARDED = "rank {}: it learns True"
PARALLEL = "GPU {}: sum 3, alike True, took time True, 0 bytes, CUDA "


def test_programs_for_gpus_run_unchanged(no_leaks, tmp_path):
    made = "accelerator=A100:2 simulate=cuda keep pool=gpus"
    out, told = run(tmp_path, made, "char_gpt.py", "2")
    assert out == of_ranks(GPT)
    assert "simulate: cuda devices are the CPU; torch says there are some" in told
    for name, end in (("sharded.py", SHARDED), ("data_parallel.py", PARALLEL + "True")):
        out, _ = run(tmp_path, "pool=gpus", name)
        assert out == of_ranks(end)
    assert sky("down", "gpus").code == 0


@pytest.mark.extensive
def test_they_resume_and_cuda_is_not_there_unless_that_is_asked_for(no_leaks, tmp_path):
    made = "accelerator=A100:2 simulate keep pool=gpus backend=nccl framework=torch"
    out, told = run(tmp_path, made, "data_parallel.py")
    assert out == of_ranks(PARALLEL + "False")
    assert "simulate: gloo for backend=nccl" in told
    assert "simulate=cuda has it say True" in told
    out, _ = run(tmp_path, "pool=gpus", "data_parallel.py")
    assert out == {"resumed": [0, 1], **of_ranks(PARALLEL + "False")}
    assert sky("down", "gpus").code == 0
    made = "accelerator=A100:2 simulate=cuda keep pool=gpus"
    run(tmp_path, made, "sharded.py")
    run(tmp_path, "pool=gpus", "char_gpt.py", "1")
    assert run(tmp_path, "pool=gpus", "sharded.py")[0]["loaded"] == [0, 1]
    assert run(tmp_path, "pool=gpus", "char_gpt.py", "2")[0]["resumed after epoch 1"] == [0, 1]
    assert sky("down", "gpus").code == 0
