"""The state of torch's models on a rank that lives, saved before all ranks are begun anew since another one died.

DDP models are equal on all ranks, so one of them saves its own, with its optimizers and their schedules. Of a
model under `fully_shard` a part went with the rank that died: that is written down in place of its state, and
`sky.rejoin` raises it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from skyward_nb.plugins import torch_models
from skyward_nb.runtime import kept_state
from skyward_nb.runtime.common_step import common_step
from skyward_nb.runtime.instance import instance_info
from skyward_nb.runtime.kept_state import KeptFile, KeptModel
from skyward_nb.store.blobs import memory_room
from skyward_nb.words.errors import spell_size

_LOST = (
    "parts of this fully sharded model were on a rank that died, and are lost with it: load its last "
    "checkpoint on all ranks"
)
_SHARE = 2
"""The part of the free memory that kept state may take is one of so many."""


def rescue(folder: Path, generation: int, name_of: Callable[[object], str]) -> str | None:
    """Keep what there is for ranks that are begun in this generation; in words what to do then, or "".

    `name_of` is the name that a cell gave an object, or "". None: parameters may be half-stepped here.
    """
    here = kept_state.here
    if here is None or common_step.is_within_step:
        return None
    gc.collect()  # models that a cell has made anew since
    models, shards = torch_models.replicas_with_holders(), torch_models.count_sharded()
    rank = instance_info().rank
    if not models and not shards:
        # Nobody has taken what was kept when a rank died before.
        there = here.hand_on(generation, None)
        return _line(rank, "model", "optimizer") if there else ""
    if why := _why_too_large(folder, models) if models else _LOST:
        here.hand_on(generation, KeptFile(rank=rank, models=[], why=why))
        return why
    kept = [
        KeptModel(
            model=ddp.module.state_dict(),
            others=[(type(each).__qualname__, each.state_dict()) for each in holders],
        )
        for ddp, holders in models
    ]
    here.hand_on(generation, KeptFile(rank=rank, models=kept, why=_LOST if shards else ""))
    ddp, holders = models[-1]
    line = _line(
        rank,
        name_of(ddp) or name_of(ddp.module) or "model",
        *(name_of(each) or _usual_name(each) for each in holders),
    )
    return f"{line}; {_LOST}" if shards else line


def _line(rank: int, *names: str) -> str:
    return (
        f"rank {rank} kept the state of its models: run the cells that make them again, and in the last of "
        f"these sky.rejoin({', '.join(names)})"
    )


def _usual_name(holder: Any) -> str:
    return "optimizer" if hasattr(holder, "zero_grad") else "schedule"


def _why_too_large(folder: Path, models: list[tuple[Any, list[Any]]]) -> str:
    """Why there is no room to keep these, or ""."""
    tensors = {
        id(each): each
        for ddp, holders in models
        for each in (
            *ddp.module.state_dict().values(),
            *(
                value
                for holder in holders
                for state in getattr(holder, "state", {}).values()
                for value in state.values()
            ),
        )
        if hasattr(each, "nbytes")
    }
    size, room = sum(each.nbytes for each in tensors.values()), memory_room(folder)
    if size * _SHARE <= room:
        return ""
    return (
        f"the state of models takes {spell_size(size)}, and {spell_size(room)} of memory are free, of which half "
        "may be used: it was not kept, so load the last checkpoint"
    )
