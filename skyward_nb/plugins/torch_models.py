"""Models of torch after their process group was cut: what it left half-done, and whether ranks made the same steps.

A pass that was cut on one rank is dropped on all, with its gradients: they would be mixed into the next
step's. Where ranks have made different numbers of optimizer steps, DDP models, their optimizers and
schedules are made as on one of them; a model under `fully_shard` is spread over ranks and cannot be, so its next
forward says so, once, on all of them. Where a collective was cut on a GPU, steps may have been called already whose
gradients did not all come, and an optimizer's step that takes long is stopped in its midst: a rank without such a step is
the one that the others are made as.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import weakref
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from skyward_nb.compat import torch_models_private, torch_private
from skyward_nb.compat.accelerate_private import unwrapped
from skyward_nb.runtime.common_step import common_step
from skyward_nb.runtime.kept_state import pop_kind
from skyward_nb.words.ranks import count_ranks, ranks_by

_MOST_APART = 4
"""Ranks that differ by more steps do so of themselves: a training that exchanges gradients keeps together."""

_made: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""`DistributedDataParallel` models of this process, numbered in the order in which they were made."""


stepped: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""The optimizers of this process that have made a step, by when they made their first one."""
_steps = itertools.count(1)


def note_step(optimizer: Any) -> None:
    """An optimizer has made a step."""
    if optimizer not in stepped:
        stepped[optimizer] = next(_steps)


def remember(ddp: Any) -> None:
    """A `DistributedDataParallel` was made."""
    _made[ddp] = max(_made.values(), default=0) + 1


@contextmanager
def remembered() -> Generator[None]:
    """Within this context, each `DistributedDataParallel` that is made is remembered."""
    from torch.nn.parallel import DistributedDataParallel

    make: Callable[..., None] = DistributedDataParallel.__init__

    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - what it is
        make(self, *args, **kwargs)
        remember(self)

    DistributedDataParallel.__init__ = __init__
    try:
        yield
    finally:
        DistributedDataParallel.__init__ = make


class ModelsStanding(msgspec.Struct, frozen=True):
    """The models of a rank: `replicas` are its DDP models in words, `shards` how many are fully sharded.

    Some are `unfinished` if a forward or backward pass was left. `rates` are the kinds of the optimizers of its DDP
    models, and their learning rates, as text: JSON has no NaN, and NaN equals nothing.
    """

    replicas: tuple[str, ...] = ()
    shards: int = 0
    unfinished: bool = False
    rates: tuple[tuple[str, ...], ...] = ()


class StepsMade(NamedTuple):
    """The optimizer steps that a rank has `ended` in a run, the last `partial_steps` maybe with a part of their gradients.

    The next one, if it `is_torn`, was stopped in its midst.
    """

    ended: int
    partial_steps: int = 0
    is_torn: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether its parameters are as after a step with all gradients."""
        return not (self.partial_steps or self.is_torn)


def standing() -> ModelsStanding:
    """That of this process."""
    replicas, sharded = _replicas(), _sharded()
    if replicas:
        gc.collect()  # optimizers that a cell has made anew since
    optimizers = _optimizers_of(replicas) if replicas else []
    return ModelsStanding(
        replicas=tuple(map(_words, replicas)),
        shards=len(sharded),
        unfinished=_is_any_unfinished(replicas, sharded),
        rates=rates_of(optimizers),
    )


def rates_of(optimizers: Iterable[Any]) -> tuple[tuple[str, ...], ...]:
    """The kind of each optimizer, and the learning rates of its groups, as text."""
    return tuple(
        (type(each).__qualname__, *map(_rate_of, each.param_groups)) for each in optimizers
    )


def _rate_of(group: dict[str, Any]) -> str:
    try:
        return str(float(group["lr"]))
    except Exception:  # noqa: BLE001 - an optimizer may have none, as Adafactor, or what is no number
        return ""


def are_unfinished() -> bool:
    """Whether a forward or backward pass of a model was left in its midst."""
    return _is_any_unfinished(_replicas(), _sharded())


def _is_any_unfinished(
    replicas: list[Any], sharded: list[torch_models_private.FullySharded]
) -> bool:
    # A reducer that was cut as it waited for its last gradients takes itself for finished.
    if common_step.left_in == "backward" and (replicas or sharded):
        return True
    return any(map(torch_models_private.is_unfinished, replicas)) or any(
        each.is_unfinished() for each in sharded
    )


def go_on(standings: Sequence[ModelsStanding], made: Sequence[StepsMade]) -> str:
    """Make good what was left, in the groups of a new generation; what came of it, in words.

    `standings` and `made` are by rank. Collective among all ranks where steps differ.
    """
    replicas, sharded = _replicas(), _sharded()
    for ddp in replicas:
        torch_models_private.begin_anew(ddp)
    for each in sharded:
        each.begin_anew()
    ended = [each.ended for each in made]
    apart = 0 < max(ended) - min(ended) <= _MOST_APART
    partial_ranks = [rank for rank, each in enumerate(made) if each.partial_steps]
    torn_ranks = [rank for rank, each in enumerate(made) if each.is_torn]
    unwhole = [rank for rank, each in enumerate(made) if not each.is_whole]
    differs = apart or bool(unwhole) or len({each.rates for each in standings}) > 1
    # A loop that trains goes on with a new step, not with what is left of one.
    lost = differs or max(ended) > 0 or any(each.unfinished for each in standings)
    words = ["models of torch (DDP, FSDP2), groups and meshes made before go on"]
    if lost:
        _drop_gradients(replicas, sharded)
        words += ["a step that was under way is lost"]
    why = [_apart(ended)] * apart
    if partial_ranks:
        most = max(each.partial_steps for each in made)
        why += [f"on {count_ranks(partial_ranks)} {partial_words(most)}"]
    if torn_ranks:
        why += [f"on {count_ranks(torn_ranks)} an optimizer step was stopped in its midst"]
    words += why
    if why and any(each.shards for each in standings):
        words += ["the next forward of a fully sharded model says so"]
        for module in filter(None, (each.root for each in sharded)):
            _say_once(module, "; ".join(why))
    if differs and any(each.replicas for each in standings):
        words += [_made_equal(replicas, standings, unwhole)]
    return "; ".join(words)


def _made_equal(
    replicas: list[Any], standings: Sequence[ModelsStanding], unwhole: Collection[int]
) -> str:
    """Make DDP models alike on all ranks; what came of it."""
    if len({each.replicas for each in standings}) > 1:
        return "ranks have other DDP models than others, which may differ: make them again"
    for ddp in replicas:
        _make_equal(ddp, unwhole)
    source = source_of(range(len(standings)), unwhole)
    if all(ddp.process_group.size() == len(standings) for ddp in replicas):
        where, is_whole = f"on rank {source}", source not in unwhole
    else:
        where, is_whole = "on a rank of their group", not unwhole
    words = f"DDP models, their optimizers and schedules are as {where}"
    if len({tuple(kind for kind, *_ in each.rates) for each in standings}) > 1:
        words += ", but for optimizers that only some ranks have"
    return words if is_whole else f"{words}: load a checkpoint if such a step matters"


def source_of(ranks: Sequence[int], unwhole: Collection[int]) -> int:
    """The rank that the others are made as: the first whose steps are all whole, if there is one."""
    return next((rank for rank in ranks if rank not in unwhole), ranks[0])


def _apart(ended: Sequence[int]) -> str:
    found = ranks_by(dict(enumerate(ended)))
    each = [f"{count_ranks(ranks)} made {steps}" for steps, ranks in sorted(found.items())]
    return f"ranks were stopped between optimizer steps: of this run {', '.join(each)}"


def partial_words(count: int) -> str:
    """What is said of a rank's last steps whose gradients did not all come."""
    steps = "optimizer step" if count == 1 else f"{count} optimizer steps"
    return f"the GPU may have made its last {steps} with only part of the gradients: the others never arrived"


def _say_once(module: Any, what: str) -> None:
    def say(*_: Any) -> None:
        handle.remove()
        raise RuntimeError(
            f"{what}. Parts of this fully sharded model do not fit together: load a checkpoint on all "
            "ranks, or run this again to go on as it is"
        )

    handle = module.register_forward_pre_hook(say, prepend=True)


def replicas_with_holders() -> list[tuple[Any, list[Any]]]:
    """DDP models in the order in which they were made, each with its optimizers and their schedules."""
    return [(ddp, _holders_of(ddp)) for ddp in sorted(_made, key=_made.__getitem__)]


def count_sharded() -> int:
    """How many modules are fully sharded."""
    return len(_sharded())


# ── what there is ───────────────────────────────────────────────────────────────────────


def _replicas() -> list[Any]:
    """Those whose groups there are: of others user code has ended them."""
    groups = {id(group) for group, _ in torch_private.groups()}
    return [
        each for each in sorted(_made, key=_made.__getitem__) if id(each.process_group) in groups
    ]


def _words(ddp: Any) -> str:
    shapes = "".join(str(tuple(each.shape)) for each in ddp.module.parameters())
    return f"{ddp.process_group.group_name}: {shapes[:1000]}"


def _live(kind: type) -> Iterator[Any]:
    """The objects of this class that there are; what looks like one and is none is not asked."""
    return (each for each in gc.get_objects() if issubclass(type(each), kind))


def _sharded() -> list[torch_models_private.FullySharded]:
    kind = torch_models_private.FullySharded.kind()
    return [torch_models_private.FullySharded(each) for each in _live(kind)] if kind else []


def _optimizers_of(replicas: list[Any]) -> list[Any]:
    """The optimizers of these models, in the order of their first parameters.

    Of several of one class that begin with the same one, those that have stepped, in the order in which they did first:
    ranks may find them in other orders. Where none has, those that there are.
    """
    import torch

    places = {
        id(parameter): (number, place)
        for number, ddp in enumerate(replicas)
        for place, parameter in enumerate(ddp.parameters())
    }
    found: dict[tuple[tuple[int, int], str], list[Any]] = {}
    for optimizer in _live(torch.optim.Optimizer):
        if unwrapped(optimizer) is not optimizer:
            continue  # schedules are of the one in it
        held = [
            places[id(each)]
            for group in optimizer.param_groups
            for each in group["params"]
            if id(each) in places
        ]
        if held:
            found.setdefault((min(held), type(optimizer).__qualname__), []).append(optimizer)
    used = {
        key: sorted(filter(stepped.__contains__, each), key=stepped.__getitem__)
        for key, each in found.items()
    }
    return [each for key in sorted(found) for each in used[key] or found[key]]


# ── what is made good ───────────────────────────────────────────────────────────────────


def _drop_gradients(replicas: list[Any], sharded: list[torch_models_private.FullySharded]) -> None:
    for ddp in replicas:
        for parameter in ddp.parameters():
            parameter.grad = None
    for each in sharded:
        for parameter in each.parameters():
            parameter.grad = None


def _make_equal(ddp: Any, unwhole: Collection[int]) -> None:
    """Have a model, its optimizers and their schedules be as on one rank of its group."""
    import torch
    import torch.distributed as dist

    group = ddp.process_group
    source = source_of(dist.get_process_group_ranks(group), unwhole)
    with torch.no_grad():
        for tensor in (*ddp.module.parameters(), *ddp.module.buffers()):
            here = tensor.to_local() if hasattr(tensor, "to_local") else tensor
            whole = here.contiguous()
            dist.broadcast(whole, source, group)
            if whole is not here:
                here.copy_(whole)
    holders = _holders_of(ddp)
    is_source = dist.get_rank() == source
    told: list[Any] = [
        [(type(each).__qualname__, each.state_dict()) for each in holders] if is_source else None
    ]
    dist.broadcast_object_list(told, source, group)
    if is_source:
        return
    left = list(told[0])
    for holder in holders:
        if (state := pop_kind(left, type(holder).__qualname__)) is not None:
            with contextlib.suppress(ValueError):  # of another one, with other groups
                holder.load_state_dict(state)


def _holders_of(ddp: Any) -> list[Any]:
    """The optimizers of a model, and their schedules."""
    optimizers = _optimizers_of([ddp])
    return [*optimizers, *(each for one in optimizers for each in _schedules_of(one))]


def _schedules_of(optimizer: Any) -> list[Any]:
    """The learning rate schedules of an optimizer, those that their kinds tell apart: one of several has these in its state."""
    import torch

    kind: Any = torch.optim.lr_scheduler.LRScheduler
    found = [
        each for each in _live(kind) if unwrapped(getattr(each, "optimizer", None)) is optimizer
    ]
    names = [type(each).__qualname__ for each in found]
    single = [each for each, name in zip(found, names, strict=True) if names.count(name) == 1]
    return sorted(single, key=lambda each: type(each).__qualname__)
