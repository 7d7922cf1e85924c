"""How a rank takes values apart for `trust=values`: into numbers, text and buffers (see `plain_values`)."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from typing import Any

from skyward_nb.pickling import reducer_table, reducers
from skyward_nb.pickling.pickle_scan import ONLY, NotPlain
from skyward_nb.pickling.plain_values import (
    EXTENSION,
    ML_TYPES,
    ZONE,
    ValueUnpickler,
    check_arrow,
    checked,
    dtype_of,
)
from skyward_nb.pickling.process_bound import Unpicklable

_PLAIN = {
    type(None), bool, int, float, str, bytes, bytearray, list, tuple, dict, set, frozenset,
    pickle.PickleBuffer,
}  # fmt: skip
_HOLDERS = {"objects", "ordered", "frame", "series", "index", "levels"}
"""Kinds of values that may hold others, and so themselves."""


class ValuePickler(pickle.Pickler):
    """Pickles one value; raises `Unpicklable` at a part that is no plain value, the `culprit`."""

    def __init__(
        self, file: io.BytesIO, buffer_callback: Callable[[pickle.PickleBuffer], Any]
    ) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffer_callback)
        self.culprit: object = None
        self._numbers: dict[int, int] = {}
        self._held: list[object] = []
        self._holders: set[int] = set()
        self.repeats: bool = False
        """Whether a value stands twice that may hold itself."""

    def persistent_id(self, obj: Any) -> Any:
        """None for what pickle writes without a name; else the parts of an array or a table."""
        kind = type(obj)
        if kind in _PLAIN:
            return None
        number = self._numbers.get(id(obj))
        if number is not None:
            self.repeats = self.repeats or number in self._holders
            return "again", number
        self.culprit = obj
        parts = _parts(obj, kind)
        number = self._numbers[id(obj)] = len(self._held)
        self._held.append(obj)
        if parts[0] in _HOLDERS:
            self._holders.add(number)
        return parts[0], number, *parts[1:]


def check_readable(data: bytes, buffers: list[memoryview]) -> None:
    """Raise `Unpicklable` for an array or a table that holds itself: its reader has no such parts yet."""
    try:
        ValueUnpickler(memoryview(data), buffers).load()
    except NotPlain as error:
        raise Unpicklable(f"{ONLY}, and no array or table that contains itself") from error


def _parts(value: Any, kind: type) -> tuple[Any, ...]:
    name = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
    if name == "numpy.ndarray" or name == "numpy.memmap":
        return _of_array(value)
    if "numpy" in sys.modules and isinstance(value, sys.modules["numpy"].generic):
        return "scalar", sys.modules["numpy"].array([value], value.dtype)
    if kind.__module__ == "pyarrow.lib" and issubclass(kind, sys.modules["pyarrow"].Array):
        return _of_arrow(value)
    if (way := _WAYS.get(name)) is None:
        raise Unpicklable(ONLY)
    return way(value)


def _of_array(array: Any) -> tuple[Any, ...]:
    import numpy

    shape = tuple(array.shape)
    if array.dtype == object:
        return "objects", shape, array.ravel().tolist()
    if array.dtype.hasobject:
        raise Unpicklable(f"{ONLY}, and not arrays with a field of objects")
    if array.dtype.name in ML_TYPES:
        descr: Any = array.dtype.name
    else:
        descr = numpy.lib.format.dtype_to_descr(array.dtype)
        dtype_of(descr)
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    whole = numpy.asarray(array, order=order)
    if not whole.nbytes:
        return "array", descr, shape, order, b""
    flat: Any = whole.ravel(order=order).view("u1")
    return "array", descr, shape, order, pickle.PickleBuffer(flat)


def _of_tensor(tensor: Any) -> tuple[Any, ...]:
    import torch

    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
        raise Unpicklable(f"{ONLY}; of tensors the dense ones: .to_dense()")
    if tensor.device.type == "meta":
        raise Unpicklable("a tensor on the meta device has no values")
    held = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    data: Any = b""
    if held.numel():
        data = reducers.torch_bytes(held.reshape(-1).view(torch.uint8))
    kind = str(held.dtype).removeprefix("torch.")
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    return "tensor", kind, tuple(held.shape), tensor.requires_grad, is_parameter, data


def _of_spread(value: Any) -> tuple[Any, ...]:
    _, (whole,) = reducer_table.reducer_of(type(value))(value)  # type: ignore[misc]
    return "itself", whole


def _of_jax(array: Any) -> tuple[Any, ...]:
    make, parts = reducer_table.reducer_of(type(array))(array)  # type: ignore[misc]
    if make is reducers.make_jax:
        return "jax", *parts
    if make is reducers.itself:
        return "itself", *parts
    raise Unpicklable(f"{ONLY}; of a key, jax.random.key_data(key)")


def _of_frame(frame: Any) -> tuple[Any, ...]:
    columns = [_of_column(frame.iloc[:, at].array) for at in range(frame.shape[1])]
    return "frame", frame.index, frame.columns, columns


def _of_column(array: Any) -> tuple[Any, ...]:
    """The values of a Series or an Index: NumPy's, or those of an extension type by its name."""
    import pandas

    kind = array.dtype
    if isinstance(array, pandas.arrays.NumpyExtensionArray):
        return "numpy", array.to_numpy()
    if isinstance(kind, pandas.CategoricalDtype):
        return "category", array.codes, array.categories, bool(kind.ordered)
    if isinstance(kind, pandas.DatetimeTZDtype):
        return "zoned", array.asi8, kind.unit, checked(ZONE, str(kind.tz), "a time zone")
    if isinstance(kind, pandas.api.extensions.ExtensionDtype):
        name = str(kind)
        if not EXTENSION.fullmatch(name):
            raise Unpicklable(
                f"{ONLY}, and not a column of {name}: .astype(...) makes one of others"
            )
        missing = [None if gone else value for value, gone in zip(array, array.isna(), strict=True)]
        return "extension", name, missing
    return "numpy", array.to_numpy()


def _of_index(index: Any) -> tuple[Any, ...]:
    import pandas

    if isinstance(index, pandas.RangeIndex):
        return "range", index.start, index.stop, index.step, index.name
    if isinstance(index, pandas.MultiIndex):
        codes = [list(map(int, each)) for each in index.codes]
        return "levels", list(index.levels), codes, list(index.names)
    freq = getattr(index, "freqstr", None)
    return "index", _of_column(index.array), index.name, *(() if freq is None else (freq,))


def _of_arrow(value: Any) -> tuple[Any, ...]:
    import pyarrow

    form = type(value).__name__
    if form not in ("Table", "RecordBatch"):
        form = "ChunkedArray" if isinstance(value, pyarrow.ChunkedArray) else "Array"
        table = pyarrow.table({"": value})
    else:
        table = value if form == "Table" else pyarrow.Table.from_batches([value])
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data = sink.getvalue()
    try:
        check_arrow(data)
    except NotPlain as error:
        raise Unpicklable(str(error)) from error
    return "arrow", form, pickle.PickleBuffer(data)


_WAYS: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "builtins.complex": lambda value: ("complex", value.real, value.imag),
    "collections.OrderedDict": lambda value: ("ordered", dict(value)),
    "torch.Tensor": _of_tensor,
    "torch.Parameter": _of_tensor,
    "torch.DTensor": _of_spread,
    "torch.Size": lambda value: ("itself", tuple(value)),
    "jaxlib.ArrayImpl": _of_jax,
    "jax.PRNGKeyArray": _of_jax,
    "tensorflow.EagerTensor": lambda value: ("tensorflow", value.numpy()),
    "pandas.DataFrame": _of_frame,
    "pandas.Series": lambda value: ("series", _of_column(value.array), value.index, value.name),
    **dict.fromkeys(("pandas.Index", "pandas.RangeIndex", "pandas.MultiIndex", "pandas.DatetimeIndex",
                     "pandas.TimedeltaIndex", "pandas.CategoricalIndex"), _of_index),
    **dict.fromkeys(("pyarrow.Table", "pyarrow.RecordBatch", "pyarrow.ChunkedArray"), _of_arrow),
}  # fmt: skip
