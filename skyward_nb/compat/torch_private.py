"""torch's private names: its process groups, what FSDP keeps, how tensors are rebuilt, its profiler.

The caller imports torch. What asks for process groups finds none where they are not
imported; `making_groups` changes nothing where torch makes them in another way. Else, where a name is
missing, AttributeError says which: the group is not formed, the value not packed.

Seen with torch 2.13.0.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

MODULE_TABLES = ("_modules", "_parameters", "_buffers")
"""The dictionaries of a module's submodules, parameters and buffers."""
COMPILER = "torch._dynamo"
"""The module that a first step of training would import."""
REDISTRIBUTION = "torch.distributed.tensor._redistribute"
"""The logger that has a word on each tensor that is brought from one placement to another."""

# ── process groups ──────────────────────────────────────────────────────────────────────


def group_module() -> Any:
    """The module that keeps the process groups, once it is imported."""
    return sys.modules.get("torch.distributed.distributed_c10d")


def groups() -> list[tuple[Any, str]]:
    """The process groups of this process, in the order they were made, and their backends by device."""
    module = group_module()
    if module is None:
        return []
    # One formed without a backend's name has several, and only this says which.
    backends = module._world.pg_backend_config
    return [(group, str(backends.get(group))) for group in list(module._world.pg_map)]


def number_groups_anew() -> None:
    """Have the next group be named as the first one that a process forms."""
    group_module()._world.group_count = 0


def abort_group(group: Any) -> None:
    """End what a group's collectives wait for; from any thread."""
    group_module()._abort_process_group(group)


def collectives_begun(group: Any) -> int:
    """The number of collectives begun on a group; raises RuntimeError for backends that do not count."""
    return group._get_sequence_number_for_group()


@contextmanager
def limits_of_collectives(limit: timedelta) -> Generator[None]:
    """Meanwhile collectives of the groups there are have this time limit; where torch cannot, their own."""
    module = group_module()
    change: Any = getattr(module, "_set_pg_timeout", None)
    before: list[tuple[Any, timedelta]] = []
    for group, _ in groups() if change else ():
        # Of one that has several backends the limits are equal: they come from one argument.
        options = [group._get_backend(device).options for device in group._device_types]
        before += [(group, each._timeout) for each in options[:1] if hasattr(each, "_timeout")]
    try:
        for group, _ in before:
            change(limit, group)
        yield
    finally:
        there = {id(group) for group, _ in groups()}
        for group, limit_before in before:
            if id(group) in there:
                change(limit_before, group)


def timeout_of(backend: str) -> timedelta:
    """The default time limit of collectives of this backend."""
    return group_module()._get_default_timeout(backend)


def ways_to_meet() -> dict[str, Callable[..., Any]]:
    """The rendezvous functions by the scheme of their URL; to be changed in place."""
    return sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers


@contextmanager
def making_groups(by: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Generator[None]:
    """Meanwhile, each new group is made by what `by` makes of torch's own function for it.

    `new_group` and `split_group` come to that one, which opens connections before it returns.
    """
    module = group_module()
    make = getattr(module, "_new_process_group_helper", None)
    if make is None:
        yield
        return
    module._new_process_group_helper = by(make)
    try:
        yield
    finally:
        module._new_process_group_helper = make


# ── what FSDP keeps ─────────────────────────────────────────────────────────────────────


def drop_unreduced_gradients(module: Any) -> None:
    """Drop gradients that a module under `fully_shard` keeps on this rank until they are reduced."""
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:  # before torch had several
        groups = [state._fsdp_param_group]
    for parameter in (each for group in groups if group for each in group.fsdp_params):
        parameter.unsharded_accumulated_grad = None
        if (unsharded := getattr(parameter, "_unsharded_param", None)) is not None:
            unsharded.grad = None


def holds_hooks(attribute: object) -> bool:
    """Whether an attribute of a module of this name holds hooks."""
    return "_hooks" in str(attribute)


# ── devices ─────────────────────────────────────────────────────────────────────────────


def device_context() -> Any:
    """The class of what `with torch.device(...)` and `torch.set_default_device` enter."""
    from torch.utils import _device

    return _device.DeviceContext


def of_lazy_tensors() -> tuple[Any, str]:
    """The class of parameters of lazy modules, and its attribute that lists the functions they take."""
    from torch.nn import parameter

    module: Any = parameter
    return module.UninitializedTensorMixin, "_allowed_methods"


# ── how tensors are rebuilt ─────────────────────────────────────────────────────────────


def is_of_a_new_type(make: Callable[..., Any]) -> bool:
    """Whether a tensor that this rebuilds is of a type that came late to torch."""
    return make.__name__ == "_rebuild_tensor_v3"


def rebuild_of_a_new_type(untyped: Any, *rest: Any) -> Any:
    """The tensor that torch rebuilds from its memory and its other parts."""
    import torch

    rebuild: Any = torch._utils._rebuild_tensor_v3  # pyright: ignore[reportAttributeAccessIssue]
    return rebuild(typed_storage(untyped, torch.uint8), *rest)


def typed_storage(untyped: Any, dtype: Any) -> Any:
    """Memory as numbers of one type, without the warning that it is not to be used any more."""
    import torch

    return torch.storage.TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)


def untyped_storage(typed: Any) -> Any:
    """The memory below it."""
    return typed._untyped_storage


# ── its profiler ────────────────────────────────────────────────────────────────────────


def is_profiled() -> bool:
    """Whether torch's one profiler records now."""
    import torch

    native: Any = torch._C
    return native._autograd._profiler_enabled()


# ── its elastic agent ───────────────────────────────────────────────────────────────────


@contextmanager
def starting_workers(start: Callable[..., Any]) -> Generator[None]:
    """Meanwhile an agent starts a worker by `start(args, env, stdout, stderr)`, and by itself where that gives None."""
    from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

    handler: Any = SubprocessHandler
    by_itself = handler._popen

    def popen(self: Any, args: Any, env: Any) -> Any:
        found = start(args, env, self._stdout, self._stderr)
        return by_itself(self, args, env) if found is None else found

    handler._popen = popen
    try:
        yield
    finally:
        handler._popen = by_itself
