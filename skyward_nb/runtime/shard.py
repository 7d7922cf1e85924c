"""`sky.shard`: this rank's part of arrays, lists, tables and data sets."""

from __future__ import annotations

import operator
from typing import Any, TypeVar, overload

from skyward_nb.runtime.indexing import Positions, is_of, taker_of
from skyward_nb.runtime.sync import data_place

S = TypeVar("S")
T = TypeVar("T")


@overload
def shard(array: T, /, *, shuffle: bool = False, seed: int = 0, drop_last: bool = False) -> T: ...
@overload
def shard(
    first: T, second: S, /, *, shuffle: bool = False, seed: int = 0, drop_last: bool = False
) -> tuple[T, S]: ...
@overload
def shard(
    first: Any,
    second: Any,
    /,
    *more: Any,
    shuffle: bool = False,
    seed: int = 0,
    drop_last: bool = False,
) -> tuple[Any, ...]: ...
def shard(*arrays: Any, shuffle: bool = False, seed: int = 0, drop_last: bool = False) -> Any:
    """Items `rank::world_size` of each array: one value for one array, else a tuple.

    In a pool with a mesh, ranks along its axis `tp` compute one thing and get the same items, those
    at `index::count` of `sky.data_place()`.

    Lists, tuples, ranges, NumPy, torch, TensorFlow and JAX arrays, pandas, polars, Arrow and
    Hugging Face tables and SciPy's sparse matrices keep their type, but for a range that is
    shuffled (a list) and a named tuple (a tuple); of a torch data set it is a `Subset`. Several
    arrays stay aligned.

    With `shuffle` the items are permuted first, by `seed` and their number alone: alike on every
    rank and machine. With `drop_last` every rank gets the same number of items, else they differ
    by one at most. Unshuffled parts of NumPy and torch arrays are views of the whole, as slices are.

    Raises TypeError for what cannot be split, such as text and iterators, and says what to do
    instead; ValueError for unequal lengths, and for what is spread over ranks already.
    """
    if not arrays:
        raise TypeError("sky.shard() needs at least one array")
    takers = [_taker(array) for array in arrays]
    lengths = [_length(array) for array in arrays]
    if len(set(lengths)) > 1:
        counts = ", ".join(map(str, lengths))
        raise ValueError(f"sky.shard: arrays of unequal length ({counts}) cannot stay aligned")
    positions = _positions(lengths[0], operator.index(seed) if shuffle else None, drop_last)
    parts = tuple(take(array, positions) for take, array in zip(takers, arrays, strict=True))
    return parts[0] if len(parts) == 1 else parts


def _positions(total: int, seed: int | None, drop_last: bool) -> Positions:
    """Those of this rank."""
    index, count = data_place()
    stop = total - total % count if drop_last else total
    places = range(index, stop, count) if index < stop else range(0)
    return Positions(places, total, seed)


def _taker(array: Any) -> Any:
    """The function that takes items of this array; for a type that is not split, raises with the alternative."""
    kind = type(array).__name__
    for module, names, advice in _REFUSED:
        if is_of(array, module, *names) and not is_of(array, *_SPARSE):
            raise TypeError(f"sky.shard: {kind} is not split; {advice}")
    if hasattr(array, "__next__"):
        raise TypeError(
            f"sky.shard: {kind} has no length to split by; give list(...) of it, or "
            "itertools.islice(it, info.rank, None, info.world_size) with sky.instance_info()"
        )
    _refuse_spread(array, kind)
    take = taker_of(array)
    if take is None:
        raise TypeError(
            f"sky.shard: {kind} cannot be split; give a list, an array, a table or a "
            "torch.utils.data.Dataset"
        )
    return take


def _refuse_spread(array: Any, kind: str) -> None:
    """Raise ValueError for an array of which each rank has a part already."""
    if is_of(array, "torch.distributed.tensor", "DTensor"):
        raise ValueError(
            f"sky.shard: this {kind} is spread over ranks already; its part here is "
            "x.to_local(), the whole of it x.full_tensor()"
        )
    if is_of(array, "jax", "Array") and not array.is_fully_addressable:
        raise ValueError(
            "sky.shard: this jax.Array is spread over ranks already; its parts here are "
            "x.addressable_shards, the whole of it multihost_utils.process_allgather(x, tiled=True)"
        )


def _length(array: Any) -> int:
    # A data set may have the shape of an item.
    is_data_set = is_of(array, "torch.utils.data", "Dataset")
    shape = None if is_data_set else getattr(array, "shape", None)
    if shape is None:
        return _count(array)
    if len(shape) == 0:
        kind = type(array).__name__
        raise TypeError(
            f"sky.shard: {kind} without dimensions has no items; give one with at least one, "
            "such as x.reshape(1)"
        )
    return int(shape[0])


def _count(array: Any) -> int:
    try:
        return len(array)
    except TypeError:
        kind = type(array).__name__
        raise TypeError(
            f"sky.shard: {kind} has no length to split by; give it a __len__, or give a list"
        ) from None


_SPARSE = ("scipy.sparse", "sparray", "spmatrix")
"""One of them is a dict, too."""
_TEXT = "give a list or an array"
_REFUSED = (
    ("builtins", ("str", "bytes", "bytearray", "memoryview"), _TEXT),
    ("builtins", ("set", "frozenset"), "it has no order: give sorted(...) of it"),
    ("datasets", ("DatasetDict", "IterableDatasetDict"), "give one of its splits"),
    (
        "datasets",
        ("IterableDataset",),
        "datasets.distributed.split_dataset_by_node(it, info.rank, info.world_size) splits it, "
        "with info = sky.instance_info()",
    ),
    ("builtins", ("dict",), "give its values, as in sky.shard(*d.values())"),
    (
        "torch.utils.data",
        ("IterableDataset",),
        "it has no positions: let its __iter__ skip items of other ranks, by sky.instance_info()",
    ),
    (
        "torch.utils.data",
        ("DataLoader",),
        "give its data set, or make it with sampler=sky.DistributedSampler(dataset)",
    ),
    (
        "tensorflow",
        ("data.Dataset",),
        "dataset.shard(info.world_size, info.rank) splits it, with info = sky.instance_info()",
    ),
    ("polars", ("LazyFrame",), "it has no rows yet: give it.collect()"),
)
"""Module, classes, and what to do instead."""
