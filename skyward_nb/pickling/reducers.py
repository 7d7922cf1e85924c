"""Reducers for objects of the standard library and of array packages.

A way takes an object and gives what `__reduce_ex__` would. Packages are never imported here: a
kind is known by the name of its module, and what rebuilds it imports the package on arrival.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import pickle
import sys
from collections.abc import Callable, Generator
from typing import Any

from skyward_nb.compat import jax_private, torch_private
from skyward_nb.pickling.process_bound import Unpicklable
from skyward_nb.words.info import COMPUTE_POOL

_PREALLOCATES = "XLA_PYTHON_CLIENT_PREALLOCATE"

running: frozenset[int] = frozenset()
"""On a rank: the ranks that run the present cell."""
gathered: dict[int, Any] = {}
"""Gathered values of the present cell, by the id of the value that was spread over ranks."""
why_not_gathered = ""
_listing: list[Any] | None = None


# ── the standard library ────────────────────────────────────────────────────────────────


def cached_function(func: Any) -> Any:
    """A function under `functools.lru_cache`, its cache empty."""
    return name_of(func, func.__qualname__) or (
        _cached,
        (func.__wrapped__, func.cache_parameters(), func.__dict__),
    )


def name_of(value: Any, name: str) -> str | None:
    """The name, if the value's module, which ranks have, too, has this very value under it."""
    found: Any = None if value.__module__ == "__main__" else sys.modules.get(value.__module__)
    for part in name.split("."):
        found = getattr(found, part, None)
    return name if found is value else None


def _cached(wrapped: Any, parameters: dict[str, Any], state: dict[str, Any]) -> Any:
    made = functools.lru_cache(**parameters)(wrapped)
    made.__dict__.update(state)
    return made


def cached_property(prop: Any) -> Any:
    """A `functools.cached_property`, which on Python 3.11 holds a lock."""
    state = {key: value for key, value in prop.__dict__.items() if key not in ("lock", "func")}
    return functools.cached_property, (prop.func,), state


def weak_dictionary(weak: Any) -> Any:
    """A dictionary of weak references; it keeps what something else that travels keeps alive."""
    return type(weak), (dict(weak),)


# ── arrays ──────────────────────────────────────────────────────────────────────────────

_OUT_OF_BAND = 4096


def numpy_array(array: Any) -> Any:
    """An array whose bytes stay out of the pickle, where NumPy itself would copy them in.

    That is so for strided ones, and for types that have no buffer format: dates, bfloat16.
    """
    if array.dtype.hasobject or (array.nbytes < _OUT_OF_BAND and array.dtype.isnative):
        return NotImplemented
    whole = array
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        whole = array.copy(order="C")
    elif array.dtype.kind not in "Mm" and array.dtype.isbuiltin == 1:
        return NotImplemented
    order = "C" if whole.flags.c_contiguous else "F"
    flat = whole.ravel(order=order).view("u1")
    return _make_numpy, (pickle.PickleBuffer(flat), array.dtype, array.shape, order)


def _make_numpy(buffer: Any, dtype: Any, shape: tuple[int, ...], order: Any) -> Any:
    import numpy

    return numpy.frombuffer(buffer, "u1").view(dtype).reshape(shape, order=order)


def limits_of_type(limits: Any) -> Any:
    """A `finfo` of NumPy, or of the types that JAX adds."""
    return _limits, (type(limits), limits.dtype)


def _limits(kind: Callable[[Any], Any], dtype: Any) -> Any:
    if dtype.type.__module__ == "ml_dtypes":
        import ml_dtypes

        kind = ml_dtypes.finfo
    return kind(dtype)


def limits_of_torch_type(limits: Any) -> Any:
    """A `finfo` or `iinfo` of torch, which knows its type by name alone."""
    return _torch_limits, (type(limits).__name__, limits.dtype)


def _torch_limits(kind: str, dtype: str) -> Any:
    import torch

    return getattr(torch, kind)(getattr(torch, dtype))


def is_torch_tensor(kind: type) -> bool:
    """Whether this is torch's own kind of tensor, and no subclass of it."""
    return kind.__name__ == "Tensor" and kind.__module__ == "torch"


def torch_view(tensor: Any) -> tuple[int, bool]:
    """(id of the memory a tensor looks at, whether that is far more than it shows)."""
    try:
        storage = tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):  # sparse and other kinds have none
        return 0, False
    whole, shown = storage.nbytes(), tensor.numel() * tensor.element_size()
    return id(storage), whole > _OUT_OF_BAND and 2 * shown < whole and not vars(tensor)


def torch_copy(tensor: Any) -> Any:
    """A tensor that looks at no more memory than it shows."""
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def torch_of_a_new_type(tensor: Any) -> Any:
    """A tensor of a type that came late to torch (float8, unsigned integers).

    torch takes those apart into a storage of another kind, which it cannot take from a pickle.
    """
    make, (storage, *rest) = tensor.__reduce_ex__(5)
    is_new = torch_private.is_of_a_new_type(make)
    return torch_private.rebuild_of_a_new_type if is_new else make, (storage, *rest)


def torch_storage(storage: Any) -> Any:
    """The memory of tensors; of a device's memory, a copy on the host."""
    import torch

    if storage.device.type == "meta":
        return NotImplemented
    content: Any = torch.empty(0, dtype=torch.uint8).set_(storage.cpu())
    return _make_torch_storage, (torch_bytes(content),)


def torch_bytes(flat: Any) -> pickle.PickleBuffer:
    """The content of a flat tensor of bytes."""
    try:
        return pickle.PickleBuffer(flat.numpy())
    except RuntimeError:  # torch is here without NumPy, or was built for another one
        kind: Any = ctypes.c_ubyte * flat.numel()
        # An object of a class of Python may have attributes: the tensor lives as long as it.
        memory: Any = type("TensorMemory", (kind,), {}).from_address(flat.data_ptr())
        memory.tensor = flat
        return pickle.PickleBuffer(memory)


def _make_torch_storage(buffer: Any) -> Any:
    import torch

    if not memoryview(buffer).nbytes:
        return torch.UntypedStorage(0)
    return torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage()


def torch_typed_storage(storage: Any) -> Any:
    """A storage of elements of one type, such as quantized tensors have."""
    return torch_private.typed_storage, (torch_private.untyped_storage(storage), storage.dtype)


def torch_generator(generator: Any) -> Any:
    """A generator of random numbers, in its present state."""
    return _make_generator, (str(generator.device), generator.get_state())


def _make_generator(device: str, state: Any) -> Any:
    import torch

    made = torch.Generator(device)
    made.set_state(state)
    return made


def may_be_spread() -> bool:
    """Whether a value here may be spread over ranks, so that packing it is a collective."""
    return "torch.distributed.tensor" in sys.modules or "jax" in sys.modules


@contextlib.contextmanager
def listing_spread() -> Generator[list[Any]]:
    """List what is spread over ranks of what is pickled meanwhile, instead of pickling it."""
    global _listing
    _listing = []
    try:
        yield _listing
    finally:
        _listing = None


def _is_jax(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] in ("jax", "jaxlib")


def describe(value: Any) -> str:
    """A description of a value that is spread over ranks; equal for equal values."""
    shape = "×".join(map(str, value.shape)) or "a scalar"
    return f"{type(value).__name__} {shape} {value.dtype}"


def gather(value: Any) -> Any:
    """The whole of what is spread over ranks, on the host; all its ranks have to call this."""
    if _is_jax(value):
        from jax.experimental import multihost_utils

        return make_jax(multihost_utils.process_allgather(value, tiled=True), False)
    import torch

    whole = value.full_tensor().detach().cpu().requires_grad_(value.requires_grad)
    is_parameter = isinstance(value, torch.nn.Parameter)
    return torch.nn.Parameter(whole, value.requires_grad) if is_parameter else whole


def _ranks_of(value: Any) -> set[int]:
    if _is_jax(value):
        return {device.process_index for device in value.sharding.device_set}
    return set(value.device_mesh.mesh.flatten().tolist())


def all_take_part(value: Any) -> bool:
    """Whether all ranks that a value is spread over run the present cell."""
    return _ranks_of(value) <= running


def spread(value: Any) -> Any:
    """The whole of a value that is spread over ranks; every rank with a part of it takes part in gathering it."""
    if _listing is not None:
        _listing.append(value)
        return itself, (None,)
    if id(value) in gathered:
        return itself, (gathered[id(value)],)
    ranks = _ranks_of(value)
    if running and not ranks <= running:
        have = ", ".join(map(str, sorted(running)))
        why = f"this cell runs on {have} alone: run it on all of them"
    else:
        why = why_not_gathered or "it can only go home as a part of a cell's value"
    own = "its .addressable_shards" if _is_jax(value) else ".to_local()"
    raise Unpicklable(f"it is spread over {len(ranks)} ranks, and {why}, or take {own}")


def itself(value: Any) -> Any:
    """What an object is rebuilt by that stands for another one."""
    return value


def jax_array(array: Any) -> Any:
    """A JAX array as a host array; one that is spread over processes, as a whole."""
    import jax
    import numpy

    if jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key):
        return _make_key, (jax.random.key_data(array), str(jax.random.key_impl(array)))
    if not array.is_fully_addressable:
        if not array.is_fully_replicated:
            return spread(array)
        array = array.addressable_data(0)
    return make_jax, (numpy.asarray(array), bool(getattr(array, "weak_type", False)))


@functools.cache
def _begin_jax() -> None:
    """Have the JAX of a notebook begin with the GPU memory that it uses.

    By its own way it would take three quarters of what there is, from the ranks that share the GPU.
    """
    import jax

    if COMPUTE_POOL in os.environ or _PREALLOCATES in os.environ:
        return
    os.environ[_PREALLOCATES] = "false"
    try:
        jax.devices()
    finally:
        del os.environ[_PREALLOCATES]  # not for the processes it starts


def make_jax(array: Any, weak: bool) -> Any:
    """A JAX array from a host array; `weak`: its type gives way to that of others."""
    import jax

    _begin_jax()
    made = jax.numpy.asarray(array)
    return jax_private.of_a_weak_type(made) if weak else made


def _make_key(data: Any, kind: str) -> Any:
    import jax

    return jax.random.wrap_key_data(data, impl=kind)


def arrow_array(array: Any) -> Any:
    """An Arrow array; a slice without the memory around it, which Arrow would send, too."""
    if array.get_total_buffer_size() <= 2 * array.nbytes + _OUT_OF_BAND:
        return NotImplemented
    import pyarrow

    chunks = array.chunks if hasattr(array, "chunks") else [array]
    compact = [pyarrow.concat_arrays([chunk, chunk.slice(0, 0)]) for chunk in chunks]
    if hasattr(array, "chunks"):
        return pyarrow.chunked_array, (compact, array.type)
    return compact[0].__reduce_ex__(5)
