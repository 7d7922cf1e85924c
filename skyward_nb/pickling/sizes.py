"""About how many bytes a value holds, without copying or packing it."""

from __future__ import annotations

import contextlib
import sys
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

_MOST = 20_000
_BIG = 64 << 20
_LONG = 100_000
_LEAVES = (str, bytes, bytearray, int, float, complex, bool, type(None), type, types.ModuleType,
           types.FunctionType, types.BuiltinFunctionType)  # fmt: skip


def looks_big(value: Any) -> bool:
    """Whether packing it may take a moment, at a glance: a large array, or a long container."""
    try:
        held = _elements(value)
        return (held is not None and held >= _BIG) or (
            type(value) in (dict, list, tuple, set) and len(value) >= _LONG
        )
    except Exception:  # noqa: BLE001 - a user's __len__ or __class__
        return False


def measure(value: object) -> tuple[int, bool]:
    """(bytes, whether counting stopped early) of a value and all it is made of.

    Arrays and tensors count with their elements, wherever those lie; every object counts once.
    """
    total = 0
    seen: set[int] = set()
    todo: deque[object] = deque([value])
    while todo:
        if len(seen) > _MOST:
            return total, True
        each = todo.popleft()
        if id(each) in seen:
            continue
        seen.add(id(each))
        with contextlib.suppress(Exception):  # a user's objects may do anything when looked at
            held = _elements(each)
            total += sys.getsizeof(each, 0) if held is None else held
            if held is None and not issubclass(type(each), _LEAVES):
                todo.extend(_parts(each))
    return total, False


def _elements(value: Any) -> int | None:
    """Bytes of an array's elements; None for what is no array."""
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    try:
        if package == "pandas" and hasattr(kind, "memory_usage"):
            usage = value.memory_usage(deep=False)
            return int(usage.sum() if hasattr(usage, "sum") else usage)
        if package in ("numpy", "torch", "jax", "jaxlib", "pyarrow", "cupy"):
            held = getattr(value, "nbytes", None)
            return held if isinstance(held, int) else None
    except Exception:  # noqa: BLE001 - a subclass may raise anything; then it is an object like others
        return None
    return None


def _parts(value: Any) -> Iterator[object]:
    kind = type(value)
    if issubclass(kind, dict):
        yield from list(dict.keys(value))
        yield from list(dict.values(value))
    elif issubclass(kind, list | tuple | set | frozenset | deque):
        yield from list(value)
    with contextlib.suppress(Exception):
        yield object.__getattribute__(value, "__dict__")
    for cls in type.mro(kind):
        slots: Any = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            with contextlib.suppress(Exception):
                yield object.__getattribute__(value, name)
