"""Types whose objects never change, so that sharing one does not matter.

A type of another package is known by the name of its module: nothing is imported here for that.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import pathlib
import pickle
import re
import types
import uuid
import weakref

from skyward_nb.pickling.process_bound import families

_CONSTANT = (
    str, bytes, int, float, complex, bool, type(None), tuple, frozenset, range, slice, type,
    types.ModuleType, types.CodeType, types.BuiltinFunctionType, types.MappingProxyType,
    type(...), pickle.PickleBuffer, enum.Enum, datetime.date, datetime.time, datetime.timedelta,
    datetime.tzinfo, decimal.Decimal, fractions.Fraction, pathlib.PurePath, re.Pattern, uuid.UUID,
)  # fmt: skip
_CONSTANT_ELSEWHERE = {
    ("numpy", "dtype"), ("numpy", "generic"), ("numpy", "ufunc"),
    ("torch", "dtype"), ("torch", "device"), ("torch", "layout"), ("torch", "memory_format"),
    ("pandas", "ExtensionDtype"), ("pyarrow", "DataType"), ("pyarrow", "Schema"),
}  # fmt: skip


_known_types: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def is_constant_type(kind: type) -> bool:
    """Whether objects of this kind never change, so that sharing one does not matter."""
    known = _known_types.get(kind)
    if known is None:
        known = _known_types[kind] = issubclass(kind, _CONSTANT) or any(
            family in _CONSTANT_ELSEWHERE for family in families(kind)
        )
    return known
