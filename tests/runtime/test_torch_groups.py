"""A process group outlives the models that use it."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest
from later import needs

from skyward_nb.runtime import torch_groups
from skyward_nb.runtime.hooks import Changes


def test_a_model_holds_its_group_as_its_last_attribute():
    class Model:
        def __init__(self, *words: str) -> None:
            self.process_group, self.reducer, self.words = "group", "reducer", words

    module = ModuleType("torch.nn.parallel.distributed")
    module.DistributedDataParallel = Model
    changes = Changes()
    torch_groups.patch(module, changes)
    assert [*vars(Model("a"))] == ["reducer", "words", "process_group"]
    changes.undo()
    assert [*vars(Model())] == ["process_group", "reducer", "words"]


SCRIPT = """\
import sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
sys.setswitchinterval(1000)  # gloo's thread waits for the interpreter until something else gives it away
model = DDP(torch.nn.Linear(64, 64))
for _ in range(3):
    model(torch.ones(4, 64)).sum().backward()
dist.destroy_process_group()
"""
ROUNDS = """\
import faulthandler, sys
from skyward_nb.runtime import hooks, script_runner
with hooks.installed():
    for _ in range(20):
        faulthandler.dump_traceback_later(60, exit=True)
        script_runner.run(sys.argv[1], [], ".")
        sys.setswitchinterval(0.005)
"""


@pytest.mark.torch
@pytest.mark.extensive
@needs("torch")
def test_names_of_a_script_with_a_group_of_its_own_go_without_a_hang(tmp_path):
    """Without the patch it hung within four rounds of twenty."""
    (tmp_path / "main.py").write_text(SCRIPT)
    words = [sys.executable, "-c", ROUNDS, "main.py"]
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
