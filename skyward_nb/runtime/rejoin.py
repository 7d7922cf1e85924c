"""`sky.rejoin`: a model and its optimizer go on where those of the ranks that lived were when another one died."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable
from typing import Any

from skyward_nb.compat.accelerate_private import unwrapped
from skyward_nb.compat.torch_models_private import COMPILED
from skyward_nb.runtime import kept_state, sharded_states
from skyward_nb.runtime.kept_state import KeptEntry, KeptModel, KeptState
from skyward_nb.runtime.state_broadcast import Broadcast


def rejoin(model: Any, *others: Any) -> bool:
    """Give a model, and its optimizers and schedules, the state that a living rank had kept when another one died.

    For torch alone. All ranks call it with what the cells above have just made anew: `sky.rejoin(model, optimizer)`.
    `model` is a `DistributedDataParallel` over all ranks, the module in one, or either as `torch.compile`
    returns it; `others` are what has `load_state_dict`. True on all ranks if the state was taken: each has
    it then, and it is there no more. False where there is none, as when no rank has died, after `%sky restart`,
    or in a pool without a process group of torch; so the call may stay in the cell that makes the model.

    Where ranks go on from a checkpoint that has of such a model and optimizer the state alone, as of one under `fully_shard`,
    they have that then, by the names that they have: as many ranks, with the same shards, else RuntimeError.

    Raises RuntimeError on all ranks, once, where state is lost: parts of a fully sharded model were on the
    rank that died, a model was over some of the ranks only, or the state was kept at two deaths: its last
    checkpoint is to be loaded. Raises RuntimeError, and leaves the state where it is, where it cannot be read,
    as when the cell with a class has not run yet, or where there is no process group. Raises ValueError where
    no kept model has these parameters, or no kept optimizer is of these kinds, or ranks give different ones, or a
    checkpoint has the state of the model and not of all others; and for a model over some of the ranks. Raises TypeError for what is no model of torch, or has no `load_state_dict`.
    """
    here = kept_state.here
    if here is None or not _is_group_there(here):
        return False
    module = _checked(model, others)
    told: list[list[KeptEntry]] = _of_all(here.entries())
    entries = {(each.origin, each.number): each for found in told for each in found}
    if _of_checkpoint(model, others):
        _remove(here, (each for each in entries.values() if each.why))
        return True
    if not entries:
        return False
    others = tuple(map(unwrapped, others))  # which is what was kept
    shapes, names = kept_state.shapes_of(module), [_name(each) for each in others]
    if any(given != (shapes, names) for given in _of_all((shapes, names))):
        raise ValueError(
            "ranks called sky.rejoin with different models, optimizers or schedules: all ranks have to give the same"
        )
    chosen, over = kept_state.choose([entries[key] for key in sorted(entries)], shapes, names)
    if isinstance(chosen, Exception):
        _remove(here, over)
        raise chosen
    readers = [rank for rank, found in enumerate(told) if chosen in found]
    found = _state(here, chosen, readers)
    _together(lambda: _load(module, others, found()), "the state that was kept cannot be taken")
    here.taken.add(module)
    _remove(here, over)
    return True


def _remove(here: KeptState, entries: Iterable[KeptEntry]) -> None:
    """Remove what is over; it is there no more on any machine afterwards."""
    import torch.distributed as dist

    here.remove(entries)
    dist.barrier()


def _of_checkpoint(model: Any, others: tuple[Any, ...]) -> bool:
    """Whether a checkpoint had states of these, under the names that they have here; all ranks have them then."""
    names = sharded_states.names_of((model, *others))
    told: list[list[str]] = _of_all(names)
    if not all(each[0] for each in told):
        return False
    if any(each != names for each in told):
        raise ValueError(
            "ranks called sky.rejoin with different names: all ranks have to give the same"
        )
    if without := [_name(each) for each, name in zip(others, names[1:], strict=True) if not name]:
        raise ValueError(
            f"the checkpoint has no state of {', '.join(without)} beside that of {names[0]}: what can be pickled is "
            "there under its name with what it had; leave it out"
        )
    _together(
        lambda: sharded_states.take(names, (model, *others)),
        "the state of the checkpoint cannot be taken, and stays",
    )
    return True


def _is_group_there(here: KeptState) -> bool:
    """Whether torch has a default group; raises RuntimeError where it has none, and there is state to be taken."""
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        return True
    if here.entries():
        raise RuntimeError(
            "state was kept for these ranks, but torch has no process group: call dist.init_process_group(), "
            "then sky.rejoin again"
        )
    return False


def _checked(model: Any, others: tuple[Any, ...]) -> Any:
    """The module of this model; raises TypeError or ValueError for what cannot rejoin."""
    import torch.distributed as dist
    from torch import nn

    if not isinstance(model, nn.Module):
        raise TypeError(
            f"sky.rejoin takes a model of torch first, then its optimizers and schedules; {_name(model)} is none"
        )
    for each in others:
        if not (hasattr(each, "state_dict") and hasattr(each, "load_state_dict")):
            raise TypeError(f"{_name(each)} has no state_dict and load_state_dict: leave it out")
    ddp = getattr(model, COMPILED, model)
    if isinstance(ddp, nn.parallel.DistributedDataParallel):
        group: Any = ddp.process_group
        count, size = group.size(), dist.get_world_size()
        if count != size:
            raise ValueError(
                f"this model is over {count} of {size} ranks, and sky.rejoin gives all ranks one state: "
                "load its last checkpoint"
            )
    return kept_state.bare(model)


def _state(here: KeptState, chosen: KeptEntry, readers: list[int]) -> Callable[[], KeptModel]:
    """What returns the chosen state on this rank; those of machines where it is not get it from the first that has it.

    Raises RuntimeError on all ranks where one cannot read it, which stays.
    """
    import torch.distributed as dist

    what = (
        "the state that was kept cannot be read, and stays: where a class is missing, run its cell and "
        "call sky.rejoin again, else load the last checkpoint"
    )
    read: list[KeptModel] = []
    _together(
        lambda: read.append(here.read(chosen)) if dist.get_rank() in readers else None,
        what,
    )
    if len(readers) == dist.get_world_size():
        return lambda: read[0]
    sent = Broadcast(readers[0], read[0] if dist.get_rank() == readers[0] else None)
    _together(lambda: None if read else read.append(sent.state()), what)
    return lambda: read[0]


def _together(work: Callable[[], object], what: str) -> None:
    """Do this on all ranks; where it fails on one, raise RuntimeError on all."""
    raised: Exception | None = None
    try:
        work()
    except Exception as error:  # noqa: BLE001 - whatever torch or a pickle raises is told to all ranks
        raised = error
    words = _of_all("" if raised is None else f"{type(raised).__name__}: {raised}")
    if failed := [(rank, each) for rank, each in enumerate(words) if each]:
        rank, each = failed[0]
        raise RuntimeError(f"{what} (rank {rank}: {each})") from raised


def _of_all(own: Any) -> list[Any]:
    """What all ranks have, by rank."""
    import torch.distributed as dist

    told: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(told, own)
    return told


def _load(module: Any, others: tuple[Any, ...], found: KeptModel) -> None:
    module.load_state_dict(found["model"])
    left = list(found["others"])
    for each in others:
        state = kept_state.pop_kind(left, _name(each))
        assert state is not None  # of these kinds it was chosen
        _load_other(each, state)


def _load_other(holder: Any, state: dict[str, Any]) -> None:
    """Load a state; what takes tensors as they are would keep the memory of the file."""
    import torch

    if not isinstance(holder, torch.optim.Optimizer):
        holder.load_state_dict(copy.deepcopy(state))
        return
    holder.load_state_dict(state)
    for kept in holder.state.values():
        # Those of parameters on a GPU were copied there.
        kept.update(
            {n: copy.deepcopy(v) for n, v in kept.items() if not getattr(v, "is_cuda", False)}
        )


def _name(holder: Any) -> str:
    return type(holder).__qualname__
