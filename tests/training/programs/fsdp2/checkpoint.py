"""A checkpoint that each rank writes its part of, and reads the parts that it needs."""

from __future__ import annotations

from pathlib import Path

import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict


def save(model: nn.Module, folder: Path) -> None:
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=folder)


def load(model: nn.Module, folder: Path) -> None:
    state = {"model": get_model_state_dict(model)}
    dcp.load(state, checkpoint_id=folder)
    set_model_state_dict(model, state["model"])
