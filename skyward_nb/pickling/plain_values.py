"""Values without code: numbers, text, containers of them, arrays and tables, for `trust=values`.

Their pickles have numbers, text, containers and buffers alone: no pickle names a class or a function, so that
reading one calls nothing that its sender chooses. An array or table stands in it as a tuple of plain parts,
`(kind, number, ...)`, from which `ValueUnpickler` makes it after it has looked at each part. What is written by others
is scanned before it is read (`pickle_scan`): opcodes that name, call, or set the state of an object are refused.

Two arrays that share memory no longer do, and `align=True` of a structured type is lost. NumPy's and pandas's own pickles are no such values: `numpy.dtype.__setstate__` takes flags on trust, and so
reads addresses that a forger writes.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from skyward_nb.pickling import reducers
from skyward_nb.pickling.pickle_scan import MANY, ONLY, NotPlain, scan

_DTYPE = re.compile(
    r"[<>|=]?[biufcSUV]\d+|[<>|=]?[mM]8(\[\d*(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)(/\d+)?\])?"
)
ML_TYPES = {
    "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn",
    "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "int2", "int4", "uint2",
    "uint4",
}  # fmt: skip
_TORCH_TYPE = re.compile(r"bool|u?int\d+|b?float\d+(_e\dm\d(fn)?u?z?)?|complex\d+")
EXTENSION = re.compile(r"U?Int(8|16|32|64)|Float(32|64)|boolean|string|str")
ZONE = re.compile(r"(?!dateutil)[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*|UTC[+-]\d\d:\d\d")
_FREQUENCY = re.compile(r"-?\d*[A-Za-z]+(-[A-Z]{3})?")
"""As pandas spells one: `D`, `2h`, `W-SUN`, `QE-DEC`."""
_SAFE_ARROW = 15
"""The first major version of pyarrow of which no release runs code of a file that it reads."""


class ValueUnpickler(pickle.Unpickler):
    """Reads what `value_pickler` writes, from any source; raises `NotPlain` for all else."""

    def __init__(self, data: memoryview, buffers: list[memoryview]) -> None:
        scan(data)
        super().__init__(io.BytesIO(data), buffers=buffers)
        self._made: dict[int, Any] = {}

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Refused: no plain value names a class or function."""
        raise NotPlain(f"it names {module_name}.{global_name}: {ONLY}")

    def persistent_load(self, pid: Any) -> Any:
        """The array or table of these parts."""
        try:
            if type(pid) is not tuple or type(pid[0]) is not str or type(pid[1]) is not int:
                raise TypeError("its parts are none")
            kind, number, *parts = pid
            if kind == "again":
                return self._made[number]
            made = self._made[number] = _MAKERS[kind](*parts)
        except NotPlain:
            raise
        except Exception as error:
            # Parts of another's making may be of any type and value.
            raise NotPlain(f"a part of it is damaged ({type(error).__name__}: {error})") from error
        return made


def checked(form: re.Pattern[str], text: Any, what: str) -> str:
    """The text, which has to be of this form; raises `NotPlain`."""
    if type(text) is not str or not form.fullmatch(text):
        raise NotPlain(f"{str(text)[:100]!r} is not {what} that trust=values takes back")
    return text


def dtype_of(descr: Any) -> Any:
    """A NumPy type from its description in the form of .npy files, after a look at each part."""
    import numpy

    if type(descr) is str and descr in ML_TYPES:
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, descr))
    _check_descr(descr)
    made: Any = numpy.lib.format.descr_to_dtype(descr)  # pyright: ignore[reportArgumentType]
    if made.hasobject:
        raise NotPlain(f"{descr!r} has objects")
    return made


def _check_descr(descr: Any) -> None:
    if type(descr) is list:
        for field in descr:
            _check_descr(field[1])
    elif type(descr) is tuple:
        _check_descr(descr[0])
    else:
        checked(_DTYPE, descr, "a type of arrays")


def _shape(shape: Any) -> tuple[int, ...]:
    if type(shape) is not tuple or not all(type(each) is int and each >= 0 for each in shape):
        raise NotPlain("an array has no valid shape")
    return shape


def _bytes(data: Any) -> memoryview:
    """Bytes of the pickle. Those of an array that was made of it may be addresses of objects."""
    if type(data) not in (bytes, bytearray, memoryview):
        raise NotPlain("the content of an array is not bytes")
    return memoryview(data)


def _check_empty(shape: Any, item_size: int) -> None:
    """Raise `NotPlain` for a shape that has values, of which no bytes came; or very many of no size."""
    if item_size and 0 not in _shape(shape):
        raise NotPlain("an array has a shape and no content")
    if math.prod(_shape(shape)) > MANY:
        raise NotPlain("an array has very many values of no size")


def _is(kind: type, value: Any, what: str) -> Any:
    """The value, which has to be of exactly this type; raises `NotPlain`.

    Of a shorter one, such as a range, its maker would make as many values as its sender likes.
    """
    if type(value) is not kind:
        raise NotPlain(f"{what} of it is no {kind.__name__}")
    return value


def _make_array(descr: Any, shape: Any, order: Any, data: Any) -> Any:
    import numpy

    kind = dtype_of(descr)
    if not _bytes(data).nbytes:
        _check_empty(shape, kind.itemsize)
        # Not numpy.zeros, which makes text of no size one letter wide.
        return numpy.ndarray(shape, kind, order="F" if order == "F" else "C")
    flat = numpy.frombuffer(data, "u1").view(kind)
    return flat.reshape(_shape(shape), order="F" if order == "F" else "C")


def _make_objects(shape: Any, items: Any) -> Any:
    import numpy

    made = numpy.empty(len(_is(list, items, "the content")), object)
    for at, each in enumerate(items):
        made[at] = each
    return made.reshape(_shape(shape))


def _make_tensor(kind: Any, shape: Any, needs_grad: Any, is_parameter: Any, data: Any) -> Any:
    import torch

    dtype = getattr(torch, checked(_TORCH_TYPE, kind, "a type of tensors"))
    view = _bytes(data)
    if not view.nbytes:
        _check_empty(shape, dtype.itemsize)
        made = torch.zeros(shape, dtype=dtype)
    else:
        flat = torch.frombuffer(bytearray(view) if view.readonly else view, dtype=torch.uint8)
        made = flat.view(dtype).reshape(_shape(shape))
    if is_parameter:
        return torch.nn.Parameter(made, bool(needs_grad))
    return made.requires_grad_(bool(needs_grad))


def _make_tensorflow(array: Any) -> Any:
    import tensorflow

    return tensorflow.convert_to_tensor(array)


def _numbers(array: Any) -> Any:
    """The values of a column: an array."""
    import numpy

    return _is(numpy.ndarray, array, "a column")


def _make_ordered(values: Any) -> OrderedDict[Any, Any]:
    """In the order of a plain dictionary, of which the scan has counted what its keys cost."""
    return OrderedDict(_is(dict, values, "a dictionary"))


def _named(name: Any) -> Any:
    """A name of rows or columns, which pandas hashes: text, a number, None, or a flat tuple of these."""
    parts = name if type(name) is tuple else (name,)
    if not all(each is None or type(each) in (str, int, float, bool) for each in parts):
        raise NotPlain("a name of rows or columns is neither text nor a number")
    return name


def _make_column(form: Any, *parts: Any) -> Any:
    import pandas

    match form:
        case "category":
            codes, categories, is_ordered = parts
            kind = pandas.CategoricalDtype(categories, bool(is_ordered))
            return pandas.Categorical.from_codes(_numbers(codes), dtype=kind)
        case "zoned":
            stamps, unit, zone = parts
            unit: Any = checked(re.compile("s|ms|us|ns"), unit, "a unit of time")
            kind = pandas.DatetimeTZDtype(unit, checked(ZONE, zone, "a time zone"))
            naive = pandas.Series(_numbers(stamps).view(f"M8[{unit}]"))
            return naive.dt.tz_localize("UTC").astype(kind).array
        case "extension":
            name, values = parts
            kind = checked(EXTENSION, name, "a type of columns")
            return pandas.Series(_is(list, values, "a column"), dtype=kind).array
        case "numpy":
            return _numbers(parts[0])
        case _:
            raise NotPlain("a column is of no known form")


def _make_frame(index: Any, columns: Any, parts: Any) -> Any:
    import pandas

    made = pandas.DataFrame({at: _make_column(*each) for at, each in enumerate(parts)}, index=index)
    made.columns = columns
    return made


def _make_series(column: Any, index: Any, name: Any) -> Any:
    import pandas

    return pandas.Series(_make_column(*column), index=index, name=_named(name))


def _make_range(start: Any, stop: Any, step: Any, name: Any) -> Any:
    import pandas

    return pandas.RangeIndex(start, stop, step, name=_named(name))


def _make_levels(levels: Any, codes: Any, names: Any) -> Any:
    import pandas

    rows = [_is(list, each, "the rows") for each in _is(list, codes, "the rows")]
    return pandas.MultiIndex(levels=levels, codes=rows, names=list(map(_named, names)))


def _make_index(column: Any, name: Any, freq: Any = None) -> Any:
    import pandas

    array = _make_column(*column)
    made: Any = pandas.Index(array, dtype=array.dtype, name=_named(name))
    if freq is not None:
        made.freq = checked(_FREQUENCY, freq, "a frequency")
    return made


def check_arrow(data: Any) -> None:
    """Raise `NotPlain` for a table with an extension type, of which Arrow calls the registered class."""
    if re.search(b"ARROW:extension:name", data):
        raise NotPlain(f"{ONLY}, and not Arrow's extension types")


def _make_arrow(form: Any, data: Any) -> Any:
    import pyarrow

    if int(pyarrow.__version__.partition(".")[0]) < _SAFE_ARROW:
        raise NotPlain(f"pyarrow {pyarrow.__version__} runs code of tables: pip install -U pyarrow")
    check_arrow(_bytes(data))
    with pyarrow.ipc.open_stream(pyarrow.py_buffer(data)) as stream:
        table = stream.read_all()
    table.validate(full=True)
    match form:
        case "Table":
            return table
        case "RecordBatch":
            return table.combine_chunks().to_batches()[0]
        case "ChunkedArray":
            return table.column(0)
        case _:
            return pyarrow.concat_arrays(table.column(0).chunks)


def _itself(value: Any) -> Any:
    """An array, or a tuple of numbers; a deep one would get by the scan, which looks at no parts."""
    if isinstance(value, (tuple, frozenset)) and not all(type(each) is int for each in value):
        raise NotPlain("a tuple in it has other items than numbers")
    return value


def _make_scalar(array: Any) -> Any:
    import numpy

    if type(array) is not numpy.ndarray or array.dtype.hasobject:
        raise NotPlain("a number of it is in no array of numbers")
    return array[0]


_MAKERS: dict[str, Callable[..., Any]] = {
    "complex": complex,
    "ordered": _make_ordered,
    "itself": _itself,
    "array": _make_array,
    "objects": _make_objects,
    "scalar": _make_scalar,
    "tensor": _make_tensor,
    "jax": reducers.make_jax,
    "tensorflow": _make_tensorflow,
    "frame": _make_frame,
    "series": _make_series,
    "range": _make_range,
    "levels": _make_levels,
    "index": _make_index,
    "arrow": _make_arrow,
}
