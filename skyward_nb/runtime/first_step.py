"""What is imported for a first step of training with torch: whoever forks processes that train has imported it."""

from __future__ import annotations

from skyward_nb.compat.torch_private import COMPILER

MODULES = (
    "torch",
    "torch.distributed",
    "torch.nn.parallel.distributed",
    "torch.optim",
    COMPILER,
)
