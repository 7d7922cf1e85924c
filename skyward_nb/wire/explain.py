"""Why an object cannot travel: the path to the part of it that cannot, its type, what to do."""

from __future__ import annotations

import contextlib
import io
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

from skyward_nb.wire.foreign import Unpicklable, refusal
from skyward_nb.wire.pickler import Pickler
from skyward_nb.words.errors import PayloadError

_DEEPEST = 12
_MOST = 20_000


def explain(name: str, value: object, error: Exception) -> PayloadError:
    """The error to raise for the variable `name`, whose pickling raised `error`."""
    text = str(error)
    if "changed size during iteration" in text:
        advice = "Something, such as a thread, is still changing it: wait for that, or send a copy."
        return PayloadError(name, name, _kind(value), "it changes while it is packed", advice)
    if isinstance(error, RecursionError) or "recursion" in text:
        advice = "Make it flatter: lists or arrays of indices instead of objects in objects."
        return PayloadError(name, name, _kind(value), "it is nested too deeply", advice)
    path, culprit, reason = _locate(name, value, error)
    why = str(reason) or type(reason).__name__
    if not isinstance(reason, Unpicklable):
        why = why.removeprefix(f"cannot pickle '{_kind(culprit)}' object")
        raised = isinstance(reason, TypeError) or "pickle" in type(reason).__name__.lower()
        why = why if raised else f"{type(reason).__name__}: {why}"
    advice = (
        f"Make it inside the cell that runs on the ranks, or leave it out of {name}."
        if path == name
        else f"Take it out of {name} before sending, or give its class a __getstate__ without it."
    )
    return PayloadError(name, path, _kind(culprit), why, advice)


def _kind(value: object) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def _locate(name: str, value: object, error: Exception) -> tuple[str, object, Exception]:
    """Walk into the first part that cannot be pickled by itself, as deep as that goes."""
    path, seen = name, {id(value)}
    for _ in range(_DEEPEST):
        if refusal(type(value)) is not None:
            break
        for count, (step, part) in enumerate(_parts(value)):
            if count > _MOST:
                return path, value, error
            if id(part) in seen:
                continue
            try:
                Pickler(io.BytesIO(), lambda _: None).dump(part)
            except Exception as inner:  # noqa: BLE001 - whatever a user's __reduce__ raises is the answer
                seen.add(id(part))
                path, value, error = path + step, part, inner
                break
        else:
            break
    return path, value, error


def _parts(value: Any) -> Iterator[tuple[str, object]]:
    """The parts of an object that a person can name: items, attributes, closed-over names."""
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", item) for key, item in list(value.items()))
    elif isinstance(value, list | tuple | deque):
        yield from ((f"[{index}]", item) for index, item in enumerate(list(value)))
    elif isinstance(value, set | frozenset):
        yield from ((f"{{{item!r}}}", item) for item in list(value))
    elif isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
    elif isinstance(value, types.FunctionType):
        yield from _of_function(value)
    else:
        yield from _of_table(value)
    yield from _state(value)


def _of_function(value: types.FunctionType) -> Iterator[tuple[str, object]]:
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
        with contextlib.suppress(ValueError):  # a cell that is empty so far
            yield f".<{name}>", cell.cell_contents
    yield from ((f".__defaults__[{i}]", each) for i, each in enumerate(value.__defaults__ or ()))
    keywords = value.__kwdefaults__ or {}
    yield from ((f".__kwdefaults__[{key!r}]", each) for key, each in keywords.items())


def _of_table(value: Any) -> Iterator[tuple[str, object]]:
    """Columns of a data frame, elements of an array of objects."""
    kind = type(value)
    if kind.__module__.partition(".")[0] == "pandas" and hasattr(kind, "items"):
        yield from ((f"[{key!r}]", part) for key, part in value.items())
    elif kind.__name__ == "ndarray" and value.dtype.hasobject:
        yield from ((f".flat[{index}]", item) for index, item in enumerate(value.flat))


def _state(value: Any) -> Iterator[tuple[str, object]]:
    """Attributes, those in slots, and those of a class."""
    with contextlib.suppress(AttributeError):
        own = vars(value) if isinstance(value, type) else object.__getattribute__(value, "__dict__")
        yield from ((f".{name}", item) for name, item in list(own.items()) if _is_state(name))
    kind: type = type(value)
    for cls in kind.__mro__:
        slots: Any = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            with contextlib.suppress(AttributeError):
                yield f".{name}", object.__getattribute__(value, name)


def _is_state(name: str) -> bool:
    return name not in ("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__")
