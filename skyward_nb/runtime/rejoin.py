"""`sky.rejoin`: a model and its optimizer go on where those of the ranks that lived were when another one died."""

from __future__ import annotations

from typing import Any

from skyward_nb.runtime import kept_state
from skyward_nb.runtime.instance import instance_info
from skyward_nb.runtime.kept_state import KeptFile, KeptModel


def rejoin(model: Any, *others: Any) -> bool:
    """Give a model, and its optimizers and schedules, the state that a living rank had kept when another one died.

    All ranks call it with what the cells above have just made anew: `sky.rejoin(model, optimizer)`. `model` is a
    `DistributedDataParallel` or the module in one; `others` are what has `load_state_dict`. True on all
    ranks if the state was taken: each has it then, and it is there no more. False where there is none, as when
    no rank has died, or after `%sky restart`; so the call may stay in the cell that makes the model.

    Raises RuntimeError, once and on all ranks, where state is lost: parts of a fully sharded model were on the
    rank that died, so its last checkpoint is to be loaded. Raises ValueError where no kept model has these
    parameters, or no kept optimizer is of these kinds.
    """
    here = kept_state.here
    if here is None or instance_info().world_size == 1:
        return False
    import torch.distributed as dist

    told: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(told, here.path() is not None)
    if not any(told):
        return False
    # Ranks of one machine see the same file: the first of them decides for all.
    source = told.index(True)
    module = model.module if _is_ddp(model) else model
    kept = KeptFile(rank=source, models=[], why="")
    choice: int | Exception = 0
    if dist.get_rank() == source:
        try:
            kept = here.read()
            choice = _choice(kept, module, others)
        except Exception as error:  # noqa: BLE001 - whatever torch or a pickle raises is told to all ranks
            choice = RuntimeError(
                f"the state that was kept cannot be read ({type(error).__name__}: {error}): "
                "load the last checkpoint"
            )
    chosen = _from(source, choice)
    if isinstance(chosen, Exception):
        if dist.get_rank() == source and isinstance(chosen, RuntimeError):
            here.replace({**kept, "why": ""})
        raise chosen
    if not all(told):
        found = _from(source, kept["models"][chosen] if dist.get_rank() == source else None)
    else:
        found = (kept["models"] or here.read()["models"])[chosen]
    _load(module, others, found)
    dist.barrier()  # all have read it
    if dist.get_rank() == source:
        here.replace({**kept, "models": [each for each in kept["models"] if each is not found]})
    return True


def _from(source: int, own: Any) -> Any:
    """What that rank has, on all."""
    import torch.distributed as dist

    told = [own]
    dist.broadcast_object_list(told, source)
    return told[0]


def _choice(kept: KeptFile, module: Any, others: tuple[Any, ...]) -> int | Exception:
    """Which of the kept models this one is, or why none can be taken."""
    shapes = _shapes(module.state_dict())
    alike = [n for n, each in enumerate(kept["models"]) if _shapes(each["model"]) == shapes]
    if not alike and kept["why"]:
        return RuntimeError(kept["why"])
    if not alike:
        count = len(kept["models"])
        return ValueError(
            f"rank {kept['rank']} kept {count} model{'s' * (count != 1)}, and none has these parameters: "
            "make the model as it was, or load a checkpoint"
        )
    names = [_name(each) for each in others]
    for number in alike:
        there = [name for name, _ in kept["models"][number]["others"]]
        if all(names.count(name) <= there.count(name) for name in names):
            return number
    had = ", ".join(name for name, _ in kept["models"][alike[0]]["others"]) or "nothing"
    return ValueError(
        f"with this model rank {kept['rank']} kept {had}; given were {', '.join(names)}. Only optimizers that "
        "have its parameters, and their schedules, are kept"
    )


def _load(module: Any, others: tuple[Any, ...], found: KeptModel) -> None:
    module.load_state_dict(found["model"])
    left = list(found["others"])
    for each in others:
        place = next(n for n, (name, _) in enumerate(left) if name == _name(each))
        each.load_state_dict(left.pop(place)[1])


def _name(holder: Any) -> str:
    return type(holder).__qualname__


def _shapes(state: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """What has a shape, by name; DTensors of one that is sharded have the whole one."""
    return {name: tuple(each.shape) for name, each in state.items() if hasattr(each, "shape")}


def _is_ddp(model: Any) -> bool:
    from torch.nn.parallel import DistributedDataParallel

    return isinstance(model, DistributedDataParallel)
