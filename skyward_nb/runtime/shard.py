"""`sky.shard`: this rank's part of arrays, lists and tables."""

from __future__ import annotations

import random
from typing import Any, TypeVar, overload

from skyward_nb.runtime.here import instance_info

T = TypeVar("T")


@overload
def shard(array: T, /, *, shuffle: bool = False, seed: int = 0, drop_last: bool = False) -> T: ...
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

    Lists, tuples, ranges, NumPy and torch arrays, JAX arrays, pandas and Hugging Face tables
    keep their type; several arrays stay aligned. With `shuffle` the items are permuted first,
    by `seed` alike on every rank. With `drop_last` every rank gets the same number of items.

    Raises TypeError for what has no items or is text, ValueError for unequal lengths.
    """
    if not arrays:
        raise TypeError("sky.shard() needs at least one array")
    lengths = [_length(array) for array in arrays]
    if len(set(lengths)) > 1:
        counts = ", ".join(map(str, lengths))
        raise ValueError(f"sky.shard: arrays of unequal length ({counts}) cannot stay aligned")
    info = instance_info()
    total = lengths[0]
    stop = total - total % info.world_size if drop_last else total
    order: range | list[int] = range(info.rank, stop, info.world_size)
    if shuffle:
        everything = list(range(total))
        random.Random(seed).shuffle(everything)  # noqa: S311 - a split, not a secret
        order = everything[info.rank : stop : info.world_size]
    parts = tuple(_take(array, order) for array in arrays)
    return parts[0] if len(parts) == 1 else parts


def _length(array: Any) -> int:
    if isinstance(array, str | bytes | bytearray | dict | set | frozenset):
        kind = type(array).__name__
        raise TypeError(f"sky.shard: a {kind} is not split; give a list or an array")
    try:
        return len(array)
    except TypeError:
        kind = type(array).__name__
        raise TypeError(f"sky.shard: a {kind} has no length to split by") from None


def _take(array: Any, order: range | list[int]) -> Any:
    """The items of `array` at `order`, in its own type."""
    if isinstance(array, list | tuple):
        chosen = [array[index] for index in order]
        return chosen if isinstance(array, list) else tuple(chosen)
    if isinstance(array, range) and isinstance(order, range):
        return array[order.start : order.stop : order.step]
    if isinstance(array, range):
        return [array[index] for index in order]
    if hasattr(array, "iloc"):
        return array.iloc[list(order)]
    if hasattr(array, "select") and hasattr(array, "features"):
        return array.select(order)
    if hasattr(array, "shape") and isinstance(order, range):
        return array[order.start : order.stop : order.step]
    if hasattr(array, "shape"):
        return array[_index(array, list(order))]
    kind = type(array).__name__
    raise TypeError(f"sky.shard: a {kind} cannot be split; give a list, an array or a table")


def _index(array: Any, order: list[int]) -> Any:
    """A list of positions in the form that the array's library indexes with."""
    if type(array).__module__.partition(".")[0] in ("jax", "jaxlib"):
        import numpy

        return numpy.asarray(order)
    return order
