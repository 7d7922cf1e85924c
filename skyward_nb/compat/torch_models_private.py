"""torch's private names of models, of what trains them, and of what DDP and FSDP keep of a pass.

The caller imports torch. Where a name is missing AttributeError says which: nothing is made good.

Seen with torch 2.13.0.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

MODULE_TABLES = ("_modules", "_parameters", "_buffers")
"""The dictionaries of a module's submodules, parameters and buffers."""
COMPILED = "_orig_mod"
"""The module's name within what `torch.compile` made of it; where torch has another, a compiled model is no DDP model."""

PARAMETRIZED = "torch.nn.utils.parametrize"
"""The module that says it has the classes of modules with parametrizations; each such module has a class of its own."""


_WRAPPED_STEP = "_wrapped_by_lr_sched"
"""What a schedule marks the `step` by that it wraps in an optimizer."""
_WORKERS = "_iterator"
"""What a loader keeps of one pass for the next, where its workers go on."""

_COMPILED = "_torchdynamo_orig_callable"
_OF_COMPILED = ("_torchdynamo_", "get_compiler_config", "aot_compile", "_is_torch_compile")


def compiled_of(function: Any) -> tuple[Any, Any] | None:
    """Of what `torch.compile` made of a function: what compiles with its settings, and the function; None for others."""
    known, names = vars(function), function.__code__.co_freevars
    is_itself = known.get("_torchdynamo_wrapper_id") == id(function)
    if not is_itself or _COMPILED not in known or "self" not in names:
        return None
    return function.__closure__[names.index("self")].cell_contents, known[_COMPILED]


def wraps_compiled(function: Any) -> bool:
    """Whether this wraps what `torch.compile` made, with copies of what that knows."""
    return _COMPILED in vars(function)


def without_copies(function: Any) -> dict[str, Any]:
    """A function's attributes without what `functools.wraps` has copied from what `torch.compile` made."""
    known = vars(function)
    if _COMPILED not in known:
        return known
    return {name: value for name, value in known.items() if not name.startswith(_OF_COMPILED)}


def make_parametrized(kind: Any, names: tuple[str, ...]) -> Any:
    """A bare module of a kind that computes what has these names, such as a normalized weight, of its `parametrizations`."""
    from torch.nn.utils import parametrize

    module = object.__new__(kind)
    parametrize._inject_new_class(module)
    for name in names:
        parametrize._inject_property(module, name)
    return module


def attributes_of_optimizer(optimizer: Any) -> dict[str, Any] | None:
    """All that an optimizer can go on with elsewhere; None for one of a class that says itself what that is."""
    from torch.optim import Optimizer

    kind: Any = type(optimizer)
    ways = (kind.__getstate__, kind.__reduce__, kind.__reduce_ex__)
    if ways != (Optimizer.__getstate__, Optimizer.__reduce__, Optimizer.__reduce_ex__):
        return None
    return {
        name: value
        for name, value in vars(optimizer).items()
        if not hasattr(value, _WRAPPED_STEP) and (not holds_hooks(name) or value)
    }


def without_workers(loader: dict[str, Any]) -> dict[str, Any]:
    """Attributes of a `DataLoader` as it was before its first pass; its `persistent_workers` are of its process."""
    from torch.utils.data import dataloader

    is_torchs = type(loader.get(_WORKERS)).__module__ == dataloader.__name__
    return {**loader, _WORKERS: None} if is_torchs else loader


def drop_unreduced_gradients(module: Any) -> None:
    """Drop gradients that a module under `fully_shard` keeps on this rank until they are reduced."""
    FullySharded(module._get_fsdp_state()).drop_unreduced()


def is_unfinished(ddp: Any) -> bool:
    """Whether a `DistributedDataParallel` was left in the midst of a backward pass."""
    try:
        ddp.reducer._check_reducer_finalized()
    except RuntimeError:
        return True
    return False


def begin_anew(ddp: Any) -> None:
    """Have a `DistributedDataParallel` forget a backward pass that was left."""
    ddp._update_process_group(ddp.process_group)


class FullySharded:
    """What `fully_shard` keeps for a module, through one `FSDPState`."""

    def __init__(self, state: Any) -> None:
        self._state = state
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:  # before torch had several
            groups = [state._fsdp_param_group]
        self._groups: list[Any] = [group for group in groups if group]

    @staticmethod
    def kind() -> type | None:
        """The class of states; None where nothing is sharded."""
        module = sys.modules.get("torch.distributed.fsdp._fully_shard._fsdp_state")
        return getattr(module, "FSDPState", None)

    @property
    def root(self) -> Any:
        """The module whose forward begins a step; None for one within another."""
        if self._state._is_root is False:
            return None
        return next(iter(getattr(self._state, "_modules", ())), None)

    def parameters(self) -> list[Any]:
        """The parameters that an optimizer has."""
        return [each.sharded_param for group in self._groups for each in group.fsdp_params]

    def is_unfinished(self) -> bool:
        """Whether it was left in the midst of a forward or backward pass."""
        context = self._state._state_ctx
        return (
            context.iter_forward_root is not None
            or context.post_backward_final_callback_queued
            or self._state._training_state.name != "IDLE"
            or any(group._training_state.name != "IDLE" for group in self._groups)
        )

    def begin_anew(self) -> None:
        """Forget the pass that was left: gathered parameters, gradients that are not reduced, states."""
        state, idle = self._state, type(self._state._training_state).IDLE
        for group in self._groups:
            gathered = group._all_gather_result
            work: Any = getattr(gathered, "all_gather_work", None)
            if hasattr(work, "wait"):
                with contextlib.suppress(RuntimeError):
                    work.wait()  # it was cut: its memory is freed below
            for name in _OF_ONE_PASS:
                if hasattr(group, name):
                    setattr(group, name, None)
            group._post_forward_indices.clear()
            group._training_state = idle
            if group._sharded_state.name != "SHARDED":
                group._to_sharded()
        shared = state._comm_ctx
        shared.all_gather_state = None
        for name in ("reduce_scatter_states", "post_forward_order", "_last_post_reduce_events"):
            if hasattr(shared, name):
                getattr(shared, name).clear()
        if hasattr(shared, "reduce_scatter_state"):  # before torch kept several
            shared.reduce_scatter_state = None
        if hasattr(state, "_modules_to_run_forward"):
            state._modules_to_run_forward.clear()
        state._training_state = idle
        state._state_ctx.iter_forward_root = None
        state._state_ctx.post_backward_final_callback_queued = False
        self.drop_unreduced()

    def drop_unreduced(self) -> None:
        """Drop gradients that are kept on this rank until they are reduced."""
        for parameter in (each for group in self._groups for each in group.fsdp_params):
            parameter.unsharded_accumulated_grad = None
            if (unsharded := getattr(parameter, "_unsharded_param", None)) is not None:
                unsharded.grad = None


_OF_ONE_PASS = (
    "_all_gather_result",
    "_post_reduce_event",
    "_all_reduce_state",
    "_reshard_after_forward_event",
    "_partial_reduce_output",
)


def holds_hooks(attribute: object) -> bool:
    """Whether an attribute of a module of this name holds hooks."""
    return "_hooks" in str(attribute)
