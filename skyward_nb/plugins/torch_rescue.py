"""The state of torch's models on a rank that lives, saved before all ranks are begun anew since another one died.

DDP models over all ranks are equal on all of them, so one saves its own, with its optimizers and their
schedules. Of a model under `fully_shard` a part went with the rank that died, and one over some of the ranks is
not the others': that is written down in place of the state, and `sky.rejoin` raises it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from skyward_nb.plugins import torch_models
from skyward_nb.runtime import kept_state
from skyward_nb.runtime.common_step import common_step
from skyward_nb.runtime.instance import instance_info
from skyward_nb.runtime.kept_state import (
    KeptEntry,
    KeptModel,
    KeptState,
    PresentModel,
    bare,
    shapes_of,
    worth_keeping,
)
from skyward_nb.store.blobs import memory_room
from skyward_nb.words.errors import spell_size

_LOST = (
    "parts of this fully sharded model were on a rank that died, and are lost with it: load its last "
    "checkpoint on all ranks"
)
_APART = (
    "this model was over some of the ranks only, which may have trained it otherwise than others theirs: its "
    "state was not kept, so load its last checkpoint"
)
_SHARE = 2
"""The part of the free memory that kept state may take is one of so many."""
Held = tuple[Any, list[Any]]
"""A DDP model, with its optimizers and their schedules."""


def rescue(folder: Path, generation: int, name_of: Callable[[object], str]) -> str | None:
    """Keep what there is for ranks that are begun in this generation; in words what to do then, or "".

    `name_of` is the name that a cell gave an object, or "". None: parameters may be half-stepped here.
    """
    here = kept_state.here
    if here is None:
        return None
    gc.collect()  # models that a cell has made anew since
    info, shards = instance_info(), torch_models.count_sharded()
    models: list[Held] = []
    apart: list[Any] = []
    for ddp, holders in torch_models.replicas_with_holders():
        if ddp.process_group.size() == info.world_size:
            models.append((ddp, holders))
        else:
            apart.append(ddp)
    untaken = here.entries()
    present = [_present(here, ddp, holders) for ddp, holders in models]
    keep, over = worth_keeping(present, untaken)
    here.remove(over)
    if common_step.is_within_step:
        return None
    if not models and not apart and not shards:
        # Nobody has taken what was kept when a rank died before.
        return _line(untaken[0].rank, "model", "optimizer") if untaken else ""
    entries = [
        KeptEntry(
            made=generation,
            rank=info.rank,
            number=number,
            shapes=present[number].shapes,
            others=tuple(type(each).__qualname__ for each in models[number][1]),
            is_current=present[number].is_current,
        )
        for number in keep
    ]
    kept = [models[number] for number in keep]
    why = _why_too_large(folder, kept) if kept else ""
    _write(here, entries, kept, why)
    lost = [(_APART, shapes_of(bare(ddp))) for ddp in apart] + [(_LOST, {})] * (shards > 0)
    for number, (words, shapes) in enumerate(lost, len(models)):
        here.write(KeptEntry(generation, info.rank, number, shapes, why=words))
    count = common_step.partial_steps
    caveat = f" ({torch_models.partial_words(count)})" if count else ""
    line = [_line(info.rank, *_names(*models[-1], name_of), caveat=caveat)] if models else []
    said = [why] if why else line
    return "; ".join([*said, *dict.fromkeys(words for words, _ in lost)])


def _present(here: KeptState, ddp: Any, holders: Sequence[Any]) -> PresentModel:
    module = bare(ddp)
    has_stepped = any(each in torch_models.stepped for each in holders)
    return PresentModel(
        shapes_of(module),
        has_gone_on=module in here.taken or has_stepped,
        may_have=any(getattr(each, "state", None) for each in holders),
    )


def _write(here: KeptState, entries: list[KeptEntry], kept: list[Held], why: str) -> None:
    """Keep these models; where it fails, that they are lost: what was kept of them before may be older."""
    try:
        for entry, (ddp, holders) in zip(entries, kept, strict=True):
            if not why:
                others = zip(entry.others, (each.state_dict() for each in holders), strict=True)
                here.save(entry, KeptModel(model=bare(ddp).state_dict(), others=list(others)))
    except Exception as error:
        why = (
            f"the state of this model could not be kept ({type(error).__name__}: {error}): load the "
            "last checkpoint"
        )
        raise
    finally:
        if why:
            here.remove(entries)
        # Once all are whole: a rank that is ended meanwhile has kept none.
        here.write(*(replace(each, why=why, others=() if why else each.others) for each in entries))


def _names(ddp: Any, holders: Sequence[Any], name_of: Callable[[object], str]) -> list[str]:
    return [
        name_of(ddp) or name_of(ddp.module) or "model",
        *(name_of(each) or _usual_name(each) for each in holders),
    ]


def _line(rank: int, *names: str, caveat: str = "") -> str:
    return (
        f"rank {rank} kept the state of its models{caveat}: run the cells that make them again, and in the last of "
        f"these sky.rejoin({', '.join(names)})"
    )


def _usual_name(holder: Any) -> str:
    return "optimizer" if hasattr(holder, "zero_grad") else "schedule"


def _why_too_large(folder: Path, models: list[Held]) -> str:
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
