"""Why an object cannot travel: the path to the part of it that cannot, its type, what to do.

Objects here may be hostile or just odd: nothing of theirs is called that can be done without,
and what they raise is passed over.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

from skyward_nb.compat.torch_models_private import MODULE_TABLES
from skyward_nb.pickling.process_bound import Unpicklable
from skyward_nb.words.errors import PayloadError

_MOST = 2_000_000
_ATOMS = (str, bytes, int, float, complex, bool, type(None))


def explain(name: str, value: object, error: Exception, culprit: object) -> PayloadError:
    """The error to raise for the variable `name`, whose pickling raised `error` at `culprit`."""
    text = _text(error)
    if isinstance(error, RuntimeError) and "changed size during iteration" in text:
        advice = "Something, such as a thread, is still changing it: wait for that, or send a copy."
        return PayloadError(name, name, kind_of(value), "it changes while it is packed", advice)
    if isinstance(error, RecursionError) or "excessively deep recursion" in text:
        advice = "Make it flatter: lists or arrays of indices instead of objects in objects."
        return PayloadError(name, name, kind_of(value), "it is nested too deeply", advice)
    path = _path_to(culprit, value)
    if path is None:
        path = f": something inside it ({kind_of(culprit)})" if culprit is not None else ""
        culprit = value
    why = text or type(error).__name__
    if not isinstance(error, Unpicklable):
        why = why.removeprefix(f"cannot pickle '{kind_of(culprit)}' object")
        own = isinstance(error, TypeError) or "pickle" in type(error).__name__.lower()
        why = why if own else f"{type(error).__name__}: {why}"
    advice = (
        f"Take it out of {name} before sending, or give its class a __getstate__ without it."
        if path
        else f"Make {name} on the ranks instead, in the cell that reads it."
    )
    return PayloadError(name, name + path, kind_of(culprit), why, advice)


def kind_of(value: object) -> str:
    """The full name of an object's class."""
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def kind_in_short(value: object) -> str:
    """The word for an object's kind in a list of names."""
    return "class" if issubclass(type(value), type) else type(value).__name__


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a user's broken __str__
        return ""


def _path_to(culprit: object, value: object) -> str | None:
    """The shortest way a person can name from `value` to `culprit`; None where there is none."""
    seen = {id(value)}
    todo: deque[tuple[object, str]] = deque([(value, "")])
    while todo and len(seen) < _MOST:
        each, path = todo.popleft()
        if each is culprit:
            return path
        with contextlib.suppress(Exception):
            for step, part in _parts(each):
                if id(part) not in seen and type(part) not in _ATOMS:
                    seen.add(id(part))
                    todo.append((part, path + step))
    return None


def _parts(value: Any) -> Iterator[tuple[str, object]]:
    """The parts of an object that a person can name: items, attributes, closed-over names."""
    kind = type(value)
    if issubclass(kind, dict):
        for key, item in list(dict.items(value)):
            yield f"[{_spelt(key)}]", item
            yield f" (a key: {_spelt(key)})", key
    elif issubclass(kind, list | tuple | deque):
        whole = list.__iter__(value) if issubclass(kind, list) else iter(value)
        yield from ((f"[{index}]", item) for index, item in enumerate(whole))
    elif issubclass(kind, set | frozenset):
        yield from ((f"{{{_spelt(item)}}}", item) for item in list(value))
    elif kind is types.MethodType:
        yield ".__self__", value.__self__
    elif kind is types.FunctionType:
        yield from _of_function(value)
    elif issubclass(kind, functools.partial):
        yield from ((f".{name}", getattr(value, name)) for name in ("func", "args", "keywords"))
    else:
        yield from _of_table(value)
    yield from _state(value)


def _spelt(key: object) -> str:
    try:
        return repr(key)
    except Exception:  # noqa: BLE001 - a user's broken __repr__
        return f"<{type(key).__name__}>"


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
    if str(kind.__module__).partition(".")[0] == "pandas" and hasattr(kind, "items"):
        yield from ((f"[{key!r}]", part) for key, part in value.items())
    elif kind.__name__ == "ndarray" and value.dtype.hasobject:
        yield from ((f".flat[{index}]", item) for index, item in enumerate(value.flat))


def _state(value: object) -> Iterator[tuple[str, object]]:
    """Attributes, those in slots, and those of a class."""
    own: Any = {}
    with contextlib.suppress(Exception):
        is_class = issubclass(type(value), type)
        own = type.__dict__["__dict__"].__get__(value) if is_class else _dict_of(value)
    for name, item in list(own.items()):
        if name in MODULE_TABLES and type(item) is dict:
            yield from ((f".{key}", part) for key, part in item.items())
        elif name not in ("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__"):
            yield f".{name}", item
    for cls in type.mro(type(value)):
        for name, slot in list(vars(cls).items()):
            if type(slot) is types.MemberDescriptorType:
                with contextlib.suppress(Exception):
                    yield f".{name}", slot.__get__(value, type(value))


def _dict_of(value: object) -> Any:
    own = object.__getattribute__(value, "__dict__")
    return own if isinstance(own, dict) else {}
