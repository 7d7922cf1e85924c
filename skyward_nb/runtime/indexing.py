"""Selection of items at some positions of each kind of array, table and data set, in its own type.

No library is imported for it: a value can only be of one that is imported already.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

from skyward_nb.runtime.permutation import permuted, permuted_array

_MANY = 10_000
"""From so many positions on NumPy is worth its import."""


@dataclass(frozen=True)
class Positions:
    """Which of `total` items: those at `places`, of the permutation by `seed` if there is one."""

    places: range
    total: int
    seed: int | None

    @property
    def slice(self) -> slice | None:
        """The positions as a slice, where they are one."""
        if self.seed is not None:
            return None
        return slice(self.places.start, self.places.stop, self.places.step)

    @cached_property
    def array(self) -> Any:
        """The positions as a NumPy array of int64."""
        import numpy as np

        if self.seed is None:
            places = self.places
            return np.arange(places.start, places.stop, places.step, dtype=np.int64)
        return permuted_array(self.places, self.total, self.seed)

    @property
    def index(self) -> Any:
        """The array of the positions, or without NumPy the list."""
        return self.array if importlib.util.find_spec("numpy") else self.list

    @cached_property
    def list(self) -> list[int]:
        """The positions as Python's own numbers; the same whether or not there is NumPy."""
        if self.seed is None:
            return list(self.places)
        if len(self.places) >= _MANY and importlib.util.find_spec("numpy"):
            return self.array.tolist()
        return permuted(self.places, self.total, self.seed)


Taker = Callable[[Any, Positions], Any]


def taker_of(value: Any) -> Taker | None:
    """The function that takes items of a value of this type; None if there is none."""
    for module, names, take in _KINDS:
        if is_of(value, module, *names):
            return take
    return _from_array if hasattr(value, "shape") and hasattr(value, "__getitem__") else None


def is_of(value: Any, module: str, *names: str) -> bool:
    """Whether a value is of one of these classes, if the module that has them is imported."""
    loaded = sys.modules.get(module)
    for name in names:
        found = reduce(lambda owner, part: getattr(owner, part, None), name.split("."), loaded)
        if isinstance(found, type) and isinstance(value, found):
            return True
    return False


def _from_list(value: Any, positions: Positions) -> Any:
    if positions.slice is not None:
        return value[positions.slice]
    return list(map(value.__getitem__, positions.list))


def _from_tuple(value: Any, positions: Positions) -> Any:
    if positions.slice is not None:
        return tuple(value[positions.slice])
    return tuple(map(value.__getitem__, positions.list))


def _from_array(value: Any, positions: Positions) -> Any:
    return value[positions.array if positions.slice is None else positions.slice]


def _from_ndarray(value: Any, positions: Positions) -> Any:
    import numpy as np

    # take is faster, much so for rows, but would first copy the whole of what is not contiguous.
    if positions.slice is None and type(value) is np.ndarray and value.flags.c_contiguous:
        return value.take(positions.array, axis=0, mode="clip")
    return _from_array(value, positions)


def _from_tensor(value: Any, positions: Positions) -> Any:
    import torch

    if positions.slice is not None and value.layout is torch.strided:
        return value[positions.slice]
    index = torch.as_tensor(positions.index, dtype=torch.int64, device=value.device)
    return value.index_select(0, index)


def _from_tensorflow(value: Any, positions: Positions) -> Any:
    import tensorflow as tf

    if positions.slice is not None:
        return value[positions.slice]
    return tf.gather(value, positions.array)


def _from_frame(value: Any, positions: Positions) -> Any:
    return value.iloc[positions.array if positions.slice is None else positions.slice]


def _from_arrow(value: Any, positions: Positions) -> Any:
    return value.take(positions.index)


def _from_polars(value: Any, positions: Positions) -> Any:
    return value[positions.index if positions.slice is None else positions.slice]


def _from_sparse(value: Any, positions: Positions) -> Any:
    """Rows are cheap in one format alone; the others go by way of it."""
    return _from_array(value.tocsr(), positions).asformat(value.format)


def _from_hugging_face(value: Any, positions: Positions) -> Any:
    return value.select(positions.array if positions.slice is None else positions.places)


def _from_subset(value: Any, positions: Positions) -> Any:
    """Of a subset as torch made it, so that no chain of subsets grows; of any other, as a data set."""
    from torch.utils.data import Subset

    take = taker_of(value.indices)
    if type(value) is not Subset or take is None:
        return _from_data_set(value, positions)
    return Subset(value.dataset, take(value.indices, positions))


def _from_data_set(value: Any, positions: Positions) -> Any:
    from torch.utils.data import Subset

    return Subset(value, positions.list if positions.slice is None else positions.places)


_KINDS: tuple[tuple[str, tuple[str, ...], Taker], ...] = (
    ("builtins", ("list",), _from_list),
    ("builtins", ("range",), _from_list),
    ("builtins", ("tuple",), _from_tuple),
    ("numpy", ("ndarray",), _from_ndarray),
    ("torch", ("Tensor",), _from_tensor),
    ("jax", ("Array",), _from_array),
    ("pandas", ("DataFrame", "Series"), _from_frame),
    ("pandas", ("Index",), _from_array),
    ("datasets", ("Dataset",), _from_hugging_face),
    ("pyarrow", ("Table", "RecordBatch", "Array", "ChunkedArray"), _from_arrow),
    ("polars", ("DataFrame", "Series"), _from_polars),
    ("scipy.sparse", ("sparray", "spmatrix"), _from_sparse),
    ("tensorflow", ("Tensor", "Variable"), _from_tensorflow),
    ("torch.utils.data", ("Subset",), _from_subset),
    ("torch.utils.data", ("Dataset",), _from_data_set),
)
"""Module, classes and what takes their items; the first that fits."""
