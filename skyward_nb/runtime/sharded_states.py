"""The states of what cannot be pickled as it is, such as models under `fully_shard` and their optimizers, by rank.

Each rank keeps its own shards, and takes them back where the same one is made again, over as many ranks. That
needs no collective, unlike `torch.distributed.checkpoint`: at a notice other ranks may be in no run, or gone.
"""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skyward_nb.pickling.home_namespace import home

kept: dict[str, Any] = {}
"""By name, the states that a checkpoint brought, until `take` has given them."""


@dataclass(frozen=True)
class LocalShard:
    """This rank's part of a DTensor of a whole `shape`, spread as `placements` says."""

    local: Any
    shape: tuple[int, ...]
    placements: str


def state_of(value: object) -> Any:
    """The state of what has `state_dict` and `load_state_dict`, with shards in place of DTensors; else None."""
    kind = type(value)
    if not (hasattr(kind, "state_dict") and hasattr(kind, "load_state_dict")):
        return None
    given: Any = value
    return _mapped(given.state_dict(), _local)


def _local(each: Any) -> Any:
    if not _is_spread(each):
        return each
    return LocalShard(each.to_local().detach(), tuple(each.shape), str(each.placements))


def _is_spread(value: object) -> bool:
    tensors = sys.modules.get("torch.distributed.tensor")
    return tensors is not None and isinstance(value, tensors.DTensor)


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _mapped(each, change) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_mapped(each, change) for each in value)
    return change(value)


def names_of(holders: Sequence[object]) -> list[str]:
    """The names of these here for which there are states; "" for one without."""
    space = home()
    return [next((n for n in kept if space.get(n) is each), "") for each in holders]


def take(names: Sequence[str], holders: Sequence[Any]) -> None:
    """Give a model, and what has its parameters, the states kept under these names, which are there no more.

    Raises ValueError where one is spread otherwise than it was, or has other parameters; states stay then.
    """
    model, *others = holders
    _fill(model.state_dict(), kept[names[0]], names[0])
    for name, each in zip(names[1:], others, strict=True):
        params = [p for group in getattr(each, "param_groups", ()) for p in group["params"]]
        each.load_state_dict(_rebuilt(kept[name], params, name))
    given = [kept[name] for name in names]
    for name, state in list(kept.items()):
        if any(state is each for each in given):  # it may have had several names
            del kept[name]


def _fill(into: Mapping[str, Any], state: Mapping[str, Any], name: str) -> None:
    """Copy a state into the tensors of a model."""
    import torch

    if into.keys() != state.keys():
        raise ValueError(
            f"{name} has other parameters than the one in the checkpoint: make it as it was"
        )
    for key, each in state.items():
        _check(each, into[key], f"{name}, {key}")
    with torch.no_grad():
        for key, each in state.items():
            if isinstance(each, LocalShard):
                into[key].to_local().copy_(each.local)
            elif isinstance(each, torch.Tensor):
                into[key].copy_(each)


def _rebuilt(state: Mapping[str, Any], params: Sequence[Any], name: str) -> Any:
    """A state whose shards are DTensors again, spread as the parameters that they belong to."""
    from torch.distributed.tensor import DTensor

    def of(param: Any) -> Callable[[Any], Any]:
        def whole(each: Any) -> Any:
            if not isinstance(each, LocalShard):
                return copy.deepcopy(each)
            _check(each, param, name)
            local = each.local.to(param.to_local().device).clone()
            place = param.device_mesh, param.placements
            return DTensor.from_local(
                local, *place, run_check=False, shape=param.shape, stride=param.stride()
            )

        return whole

    rebuilt = dict(state)
    if isinstance(state.get("state"), Mapping):
        rebuilt["state"] = {
            number: _mapped(each, of(params[number]) if number < len(params) else copy.deepcopy)
            for number, each in state["state"].items()
        }
    return rebuilt


def _check(state: Any, there: Any, what: str) -> None:
    """Raise ValueError where a tensor is not like the one that was kept."""
    is_spread = _is_spread(there)
    if isinstance(state, LocalShard):
        is_same = is_spread and (tuple(there.shape), str(there.placements)) == (
            state.shape,
            state.placements,
        )
        with contextlib.suppress(AttributeError):
            is_same = is_same and there.to_local().shape == state.local.shape
    else:
        is_same = not is_spread and getattr(there, "shape", 0) == getattr(state, "shape", 0)
    if not is_same:
        raise ValueError(
            f"{what} is not as it was in the checkpoint: make it with the same shapes, spread in the same way over as many ranks"
        )
