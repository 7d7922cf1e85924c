"""Modules that torch imports in the first step of a training: the process that forks ranks imports them before."""

from __future__ import annotations

from skyward_nb.compat.torch_private import COMPILER

MODULES = (
    "torch",
    "torch.distributed",
    "torch.nn.parallel.distributed",
    "torch.optim",
    COMPILER,
)
