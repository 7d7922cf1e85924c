"""CUDA devices that are the CPU: on ranks whose GPUs are simulated, GPU programs of torch run unchanged.

Devices are read where Python code names them: in functions of `torch` and methods of tensors and modules,
which are replaced for a generation. So every thread and process that a rank forks sees the same, compiled code
is traced through it, and what is computed is computed by torch as ever. Tensors say that they are on the
CPU, `.cuda()` is `.cpu()`, nothing is counted in the GPU's memory, and NCCL is gloo. What is not replaced
says, as torch does without CUDA, that there is none.

This imports torch: only ranks that it is for import it.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

from skyward_nb.compat import torch_private
from skyward_nb.plugins.simulated_cuda import SimulatedGpus, current, nothing, of_devices

_FACTORIES = (
    "arange", "as_tensor", "asarray", "bartlett_window", "blackman_window", "empty", "empty_like",
    "empty_permuted", "empty_strided", "eye", "full", "full_like", "hamming_window", "hann_window",
    "kaiser_window", "linspace", "logspace", "normal", "ones", "ones_like", "rand", "rand_like", "randint",
    "randint_like", "randn", "randn_like", "randperm", "range", "scalar_tensor", "sparse_bsc_tensor",
    "sparse_bsr_tensor", "sparse_compressed_tensor", "sparse_coo_tensor", "sparse_csc_tensor",
    "sparse_csr_tensor", "tensor", "tril_indices", "triu_indices", "zeros", "zeros_like",
)  # fmt: skip
"""Functions of torch with the keyword `device`."""
_METHODS = (
    "new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros",
)  # fmt: skip
"""The same of tensors."""
_OF_CPUS = (
    "'pin_memory' argument is set as true",
    "DTensor random operators may not have complete",
)
"""Beginnings of what torch remarks of CPUs, and would not of GPUs."""
_BETWEEN_CPU_AND_CUDA = 15
"""The priority of a reader of stored tensors, between those of torch."""


_here: SimulatedGpus | None = None
"""Those of this process at present."""


@contextmanager
def cuda_on_cpu(gpus: SimulatedGpus) -> Generator[None]:
    """Meanwhile, CUDA devices are the CPU in this process."""
    global _here
    with torch.device("cpu"):
        torch.empty(0)  # torch lists its own functions now, for contexts of devices
    _read_stored_tensors()
    for remark in _OF_CPUS:
        warnings.filterwarnings("ignore", remark, UserWarning)
    with ExitStack() as undo:
        for owner, name, made in (*_replacements(gpus), *_of_groups(gpus)):
            undo.enter_context(_replaced(owner, name, made))
        _here = gpus
        current.index = gpus.own
        try:
            yield
        finally:
            _here = None


@contextmanager
def _replaced(owner: Any, name: str, made: Any) -> Generator[None]:
    is_own = name in vars(owner)
    before = getattr(owner, name)
    setattr(owner, name, made)
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, before)
        else:  # a base of its has it
            delattr(owner, name)


@functools.cache
def _replacements(gpus: SimulatedGpus) -> tuple[tuple[Any, str, Any], ...]:
    """(owner, name, what takes its place), of what this version of torch has.

    The same in all generations: torch's compiler remembers functions.
    """
    return tuple(_made(gpus))


def _made(gpus: SimulatedGpus) -> Iterator[tuple[Any, str, Any]]:
    for owner, names in (
        (torch, _FACTORIES),
        (torch.fft, ("fftfreq", "rfftfreq")),
        (torch.nested, ("as_nested_tensor", "nested_tensor")),
        (torch.Tensor, _METHODS),
    ):
        for name in names:
            if hasattr(owner, name):
                yield owner, name, _named(_making(getattr(owner, name), gpus), owner, name)
    to = _named(_moving(torch.Tensor.to, gpus), torch.Tensor, "to")
    cuda = _named(_to_cuda(gpus), torch.Tensor, "cuda")
    yield torch.Tensor, "to", to
    yield torch.Tensor, "cuda", cuda
    yield torch.nn.Module, "to", _moving(torch.nn.Module.to, gpus)
    lazy, allowed = torch_private.of_lazy_tensors()
    yield lazy, allowed, [*getattr(lazy, allowed), to, cuda]
    yield torch, "Generator", _generator(gpus)
    yield torch.Tensor, "pin_memory", _pinned
    yield torch.Tensor, "record_stream", nothing
    context = torch_private.device_context()
    yield context, "__init__", _with_first(context.__init__, "device", lambda it: _device(it, gpus))
    yield torch.amp.autocast, "__init__", _cast(torch.amp.autocast.__init__)
    scaler = torch.amp.GradScaler
    yield scaler, "__init__", _with_first(scaler.__init__, "device", _type, default="cuda")
    for module, functions in of_devices(gpus):
        for name, made in functions.items():
            if hasattr(module, name):
                yield module, name, made


# ── devices that code names ─────────────────────────────────────────────────────────────


def _device(asked: Any, gpus: SimulatedGpus) -> Any:
    """The CPU for a device of CUDA, by its name or number too; others as they are."""
    if isinstance(asked, int) and not isinstance(asked, bool):
        gpus.checked(asked)
        return torch.device("cpu")
    is_named = isinstance(asked, str) and asked.partition(":")[0] == "cuda"
    found = torch.device(asked) if is_named else asked
    if isinstance(found, torch.device) and found.type == "cuda":
        gpus.checked(found.index)
        return torch.device("cpu")
    return asked


def _type(asked: Any) -> Any:
    """The type of a device, `cpu` for `cuda`."""
    return "cpu" if str(asked).partition(":")[0] == "cuda" else asked


def _making(make: Callable[..., Any], gpus: SimulatedGpus) -> Callable[..., Any]:
    """A function of torch that makes tensors."""

    @functools.wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = _device(kwargs["device"], gpus)
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return make(*args, **kwargs)

    return made


def _named(made: Any, owner: Any, name: str) -> Any:
    """What takes the place of a name, to travel by that as torch's own does."""
    is_class = isinstance(owner, type)
    made.__module__ = owner.__module__ if is_class else owner.__name__
    made.__qualname__ = f"{owner.__qualname__}.{name}" if is_class else name
    return made


def _moving(to: Callable[..., Any], gpus: SimulatedGpus) -> Callable[..., Any]:
    """`to` of tensors or modules."""

    @functools.wraps(to)
    def moved(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args:
            args = (_device(args[0], gpus), *args[1:])
        if "device" in kwargs:
            kwargs["device"] = _device(kwargs["device"], gpus)
        return to(self, *args, **kwargs)

    return moved


def _to_cuda(gpus: SimulatedGpus) -> Callable[..., Any]:
    def cuda(
        self: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = None
    ) -> Any:
        if device is not None:
            _device(device, gpus)
        formats = {} if memory_format is None else {"memory_format": memory_format}
        return self.to("cpu", non_blocking=non_blocking, **formats)

    return cuda


def _with_first(
    init: Callable[..., None], name: str, change: Callable[[Any], Any], default: Any = None
) -> Callable[..., None]:
    """An `__init__` whose first argument, of this name, is changed."""

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - what it is
        if args:
            args = (change(args[0]), *args[1:])
        elif name in kwargs or default is not None:
            kwargs[name] = change(kwargs.get(name, default))
        init(self, *args, **kwargs)

    return __init__


def _cast(init: Callable[..., None]) -> Callable[..., None]:
    """The `__init__` of `torch.autocast`: to the type that it has on CUDA."""

    @functools.wraps(init)
    def __init__(  # noqa: N807 - what it is
        self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        kind = _type(device_type)
        if kind != device_type and dtype is None:
            dtype = torch.get_autocast_dtype("cuda")
        init(self, kind, dtype, *args, **kwargs)

    return __init__


def _generator(gpus: SimulatedGpus) -> Any:
    """`torch.Generator`, whose instances are torch's own."""

    class OfClass(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, made)

    class Generator(metaclass=OfClass):
        def __new__(cls, device: Any = "cpu") -> Any:
            return made(_device(device, gpus))

    made = torch.Generator
    return _named(Generator, torch, "Generator")


def _pinned(self: Any, device: Any = None) -> Any:
    """`pin_memory` of a tensor: the CPU's memory is where it is to be."""
    del device
    return self


@functools.cache
def _read_stored_tensors() -> None:
    """Have `torch.load` put what was stored on a GPU, or is to be there, into the CPU's memory."""

    def stored(_: Any) -> None:
        return None

    def restored(storage: Any, location: str) -> Any:
        return storage if _here is not None and location.partition(":")[0] == "cuda" else None

    torch.serialization.register_package(_BETWEEN_CPU_AND_CUDA, stored, restored)


# ── process groups, and what is spread over them ────────────────────────────────────────


def _of_groups(gpus: SimulatedGpus) -> Iterator[tuple[Any, str, Any]]:
    """The same for functions that the plugin replaces, too, in each generation."""
    for name in ("init_process_group", "new_group"):
        made = _without_nccl(getattr(dist, name))
        for owner in (dist, torch_private.group_module()):
            yield owner, name, made
    yield DeviceMesh, "__init__", _with_first(DeviceMesh.__init__, "device_type", _type)
    made = _without_ids(DistributedDataParallel.__init__, gpus)
    yield DistributedDataParallel, "__init__", made
    made = _on_cpu(FullyShardedDataParallel.__init__, gpus)
    yield FullyShardedDataParallel, "__init__", made


def _without_nccl(make: Callable[..., Any]) -> Callable[..., Any]:
    """A function that forms a group: gloo where NCCL is asked for, and on no device."""
    signature = inspect.signature(make)

    @functools.wraps(make)
    def formed(*args: Any, **kwargs: Any) -> Any:
        try:
            asked = dict(signature.bind(*args, **kwargs).arguments)
        except TypeError:
            return make(*args, **kwargs)  # torch says it better
        if "nccl" in str(asked.get("backend")).lower():
            asked["backend"] = "gloo"
            asked.pop("pg_options", None)
        asked.pop("device_id", None)
        return make(**asked)

    return formed


def _without_ids(init: Callable[..., None], gpus: SimulatedGpus) -> Callable[..., None]:
    """`DistributedDataParallel` of a model on the CPU, which takes no numbers of devices."""
    signature = inspect.signature(init)

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - what it is
        asked = signature.bind(self, *args, **kwargs)
        for device in asked.arguments.pop("device_ids", None) or ():
            _device(device, gpus)
        asked.arguments.pop("output_device", None)
        init(*asked.args, **asked.kwargs)

    return __init__


def _on_cpu(init: Callable[..., None], gpus: SimulatedGpus) -> Callable[..., None]:
    """`FullyShardedDataParallel` on the CPU, for which it has to be named."""
    signature = inspect.signature(init)

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - what it is
        asked = signature.bind(self, *args, **kwargs)
        if (device := asked.arguments.get("device_id")) is not None:
            _device(device, gpus)
        asked.arguments["device_id"] = torch.device("cpu")
        init(*asked.args, **asked.kwargs)

    return __init__
