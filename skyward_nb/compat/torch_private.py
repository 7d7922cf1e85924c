"""torch's private names: its process groups, how tensors are rebuilt, its profiler.

The caller imports torch. What asks for process groups finds none where they are not imported; `making_groups` changes
nothing where torch makes them in another way. Else AttributeError says which name is missing: no group, no value.

Seen with torch 2.13.0.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

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


def abort_groups(groups: list[Any]) -> None:
    """End what the collectives of these groups on NCCL wait for; from any thread. The groups stay registered."""
    backends: list[Any] = []
    for group in groups:
        before = _aborted.setdefault(group, [])
        with contextlib.suppress(RuntimeError):  # it has a backend of the user's own, too
            new = [each for each in backends_of(group) if each.name() == "nccl"]
            new = [each for each in new if each not in before]
            before += new
            backends += new
    # At once: the abort of one may wait for what another one has on the GPU. torch's own `_group_start` is of one
    # thread, and each abort has a thread of its own.
    aborts = [threading.Thread(target=_abort, args=(each,), daemon=True) for each in backends]
    for each in aborts:
        each.start()
    for each in aborts:
        each.join()


def _abort(backend: Any) -> None:
    # One that could not is as good as aborted: a second time it would free what is freed.
    with contextlib.suppress(Exception):
        backend.abort()


_aborted: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()
"""By group, its backends that were aborted."""


def collectives_on_gpu(after: int) -> list[str]:
    """Names of NCCL's collectives that have not ended, of those recorded later than `after`; none where torch records none.

    https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html
    """
    return [each["profiling_name"].removeprefix("nccl:") for each in _not_ended(after)]


def begun_and_not_ended(after: int) -> int | None:
    """When the first of these was called, in nanoseconds as `time.time_ns`; None if there is none."""
    return min((each["time_created_ns"] for each in _not_ended(after)), default=None)


def _not_ended(after: int) -> list[dict[str, Any]]:
    entries = _recorded()
    ended: dict[str, int] = {}
    for each in entries:
        if each["state"] == "completed":
            ended[_line_of(each)] = each["record_id"]
    # They end in their order; single ones of a coalesced operation are never said to end.
    return [
        each for each in entries if each["record_id"] > max(after, ended.get(_line_of(each), -1))
    ]


def _line_of(entry: dict[str, Any]) -> str:
    """What a recorded collective is in a line with: those of its group, or what pairs of its ranks send."""
    return f"{entry['process_group']} {entry.get('is_p2p')}"


def last_recorded() -> int:
    """The number of the last collective of NCCL that torch has recorded; -1 if there is none."""
    return max((each["record_id"] for each in _recorded()), default=-1)


def _recorded() -> list[dict[str, Any]]:
    """What torch's flight recorder has on collectives of NCCL, the oldest first."""
    module = sys.modules.get("torch._C._distributed_c10d")
    dump: Any = getattr(module, "_dump_nccl_trace", None)
    if dump is None:
        return []
    # Written by torch in this process.
    told = pickle.loads(dump(True, False, False))  # noqa: S301
    return told.get("entries", [])


def collectives_begun(group: Any) -> int:
    """The number of collectives begun on a group; raises RuntimeError for backends that do not count.

    Of its present backends: torch's own count is that of the first one.
    """
    return sum(each._get_sequence_number_for_group() for each in backends_of(group))


def backends_of(group: Any) -> list[Any]:
    """The backends of a group, each once, in the order of its devices' names."""
    devices = sorted(group._device_types, key=lambda device: device.type)
    found = {id(each): each for each in map(group._get_backend, devices)}
    return list(found.values())


def ranks_of(group: Any) -> tuple[int, ...]:
    """The ranks in a group, in its own order."""
    places = group_module()._world.pg_group_ranks[group]
    return tuple(sorted(places, key=places.__getitem__))


def groups_numbered() -> int:
    """How many groups this process has numbered."""
    return group_module()._world.group_count


def number_groups_from(count: int) -> None:
    """Have the next group be numbered so."""
    group_module()._world.group_count = count


FIRST_TYPE, LAST_TYPE = 7, 255
"""Numbers that torch's kinds of backends leave free; a group keeps one backend of each, and lets none go."""


def is_exchangeable(group: Any) -> bool:
    """Whether all backends of a group are of kinds that `exchange_backend` knows."""
    import torch.distributed as dist

    known = [getattr(dist, name, None) for name in ("ProcessGroupGloo", "ProcessGroupNCCL")]
    return type(group) is dist.ProcessGroup and all(
        type(backend) in known for backend in backends_of(group)
    )


def exchange_backend(group: Any, old: Any, store: Any, number: int) -> None:
    """Give a group another backend over `store` in place of `old`, which it keeps, but uses no more.

    Collective among its ranks. `number` is free for it, from FIRST_TYPE to LAST_TYPE, else ValueError.
    """
    import torch.distributed as dist

    if not FIRST_TYPE <= number <= LAST_TYPE:  # torch would take another one
        raise ValueError(f"a backend's number is {FIRST_TYPE} to {LAST_TYPE}, not {number}")
    has_it = [each for each in group._device_types if group._get_backend(each) is old]
    make = _nccl_anew if old.name() == "nccl" else _gloo_anew
    new = make(old, store, group.rank(), group.size())
    new._set_sequence_number_for_group()
    for device in has_it:
        group._register_backend(device, dist.ProcessGroup.BackendType(number), new)
    if old.name() == "nccl" and group.bound_device_id and new.supports_splitting:
        new.eager_connect_single_device(group.bound_device_id)


def _gloo_anew(old: Any, store: Any, rank: int, size: int) -> Any:
    import torch.distributed as dist

    kind: Any = dist.ProcessGroupGloo  # pyright: ignore[reportPrivateImportUsage]
    # The same devices: each has a thread, and a socket that listens.
    options = _as_of(old, kind._Options(), "_devices", "_threads")
    return kind(store, rank, size, options)


def _nccl_anew(old: Any, store: Any, rank: int, size: int) -> Any:
    import torch.distributed as dist

    kind: Any = dist.ProcessGroupNCCL  # pyright: ignore[reportPrivateImportUsage]
    # Not what it was split from: that one is aborted.
    return kind(store, rank, size, _as_of(old, kind.Options(), "is_high_priority_stream", "config"))


def _as_of(old: Any, options: Any, *names: str) -> Any:
    for name in (*names, "_timeout", "group_name", "global_ranks_in_group"):
        if hasattr(old.options, name):
            setattr(options, name, getattr(old.options, name))
    return options


def put_store(group: Any, store: Any) -> None:
    """Have torch's Python code find this store for a group."""
    world = group_module()._world
    world.pg_map[group] = world.pg_map[group][0], store
    world.pg_coalesce_state.pop(group, None)


def is_in_backward() -> bool:
    """Whether this thread is in a backward pass."""
    import torch

    native: Any = torch._C
    return native._current_graph_task_id() != -1


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


def watch_backward(call: Callable[[], None] | None) -> None:
    """Have this called before each backward pass, from any thread; None: nothing."""
    import torch

    module: Any = torch.autograd
    run = getattr(module._engine_run_backward, "__wrapped__", module._engine_run_backward)
    if call is None:
        module._engine_run_backward = run
        return

    @functools.wraps(run)
    def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
        call()
        return run(*args, **kwargs)

    module._engine_run_backward = _engine_run_backward


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


# ── learning rate schedules ─────────────────────────────────────────────────────────────


def has_stepped(optimizer: Any) -> bool:
    """Whether an optimizer has noted that it stepped."""
    return bool(getattr(optimizer, "_opt_called", False))


def note_steps(optimizer: Any, *, has_stepped: bool = False) -> None:
    """Have an optimizer note that it stepped, as a schedule that is made for it does.

    A schedule whose optimizer does not warns at its first step; no pickle of an optimizer keeps that.
    """
    if not hasattr(getattr(optimizer, "step", None), "__func__"):
        return  # none, or one whose steps are noted, by torch or in a way of its own
    if has_stepped:
        optimizer._opt_called = True
    own, step = weakref.ref(optimizer), optimizer.step.__func__

    @functools.wraps(step)
    def noting(*given: Any, **named: Any) -> Any:
        there: Any = own()
        there._opt_called = True
        return step(there, *given, **named)

    noting._wrapped_by_lr_sched = True  # pyright: ignore[reportAttributeAccessIssue]
    optimizer.step = noting


# ── its profiler ────────────────────────────────────────────────────────────────────────


def is_profiled() -> bool:
    """Whether torch's one profiler records now."""
    import torch

    native: Any = torch._C
    return native._autograd._profiler_enabled()
