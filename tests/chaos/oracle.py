"""The values of the same cells in plain IPython, once for each rank, with no pool."""

from __future__ import annotations

import os
import types
from unittest import mock

from chaos.steps import CELLS
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

WORLD = {"a": 3, "b": 2}
"""The world size of each pool."""

PREPARED = """
import numpy as np
base = 0
large = np.arange(200_000, dtype=float)
def helper(value):
    return value + 1
def add_up(value):
    import os, sys
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_initialized():
        return value * int(os.environ["WORLD_SIZE"])
    import torch
    total = torch.tensor([value])
    dist.all_reduce(total)
    return int(total[0])
"""
"""The notebook's first cell: what the other cells read."""


def source(cell: str, n: int) -> str:
    """A cell as ranks run it, and plain IPython."""
    return placed(CELLS[cell].format(n=n))


def placed(body: str) -> str:
    """A cell that knows the rank which it runs on."""
    return f"import os\nrank = int(os.environ['RANK'])\n{body}"


class Oracle:
    """A plain IPython shell with the notebook's names."""

    def __init__(self) -> None:
        config = Config()
        config.HistoryManager.enabled = False
        self._shell = InteractiveShell(config=config, user_module=types.ModuleType("notebook"))
        self.run(PREPARED)

    def run(self, code: str) -> object:
        """The value of a cell of the notebook."""
        with capture_output():
            ran = self._shell.run_cell(code)
        ran.raise_error()
        return ran.result

    def values(self, pool: str, code: str) -> list[object]:
        """The values of a cell on the ranks of a pool."""
        size = WORLD[pool]
        found = []
        for rank in range(size):
            places = {"RANK": str(rank), "WORLD_SIZE": str(size)}
            with mock.patch.dict(os.environ, places):
                found.append(self.run(code))
        return found
