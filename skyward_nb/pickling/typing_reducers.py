"""Reducers for types that a cell makes without a class: `NewType`, `ParamSpec`, `TypeVarTuple`, `type X = …`.

Python pickles them by the name under which their module has them, and the notebook's module is not on ranks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def new_type(made: Any) -> Any:
    """A `typing.NewType`."""
    return _name_of(made) or (
        _make,
        (type(made), (made.__name__, made.__supertype__), made.__module__),
    )


def parameters(made: Any) -> Any:
    """A `typing.ParamSpec` or `TypeVarTuple`."""
    known = {
        "bound": "__bound__",
        "covariant": "__covariant__",
        "contravariant": "__contravariant__",
    }
    given = {key: value for key, name in known.items() if (value := getattr(made, name, None))}
    if getattr(made, "has_default", bool)():
        given["default"] = made.__default__
    return _name_of(made) or (_make, (type(made), (made.__name__,), made.__module__, given))


def alias(made: Any) -> Any:
    """A type that a statement has named: `type X = …`, of Python 3.12."""
    given = {"type_params": made.__type_params__}
    return _name_of(made) or (
        _make,
        (type(made), (made.__name__, made.__value__), made.__module__, given),
    )


def _name_of(made: Any) -> str | None:
    """The name under which a module that ranks have, too, has this very object."""
    module = None if made.__module__ == "__main__" else sys.modules.get(made.__module__)
    name: str = getattr(made, "__qualname__", made.__name__)
    return name if getattr(module, name, None) is made else None


def _make(
    kind: Callable[..., Any],
    args: tuple[Any, ...],
    module: str,
    given: dict[str, Any] | None = None,
) -> Any:
    # Of some the module cannot be set: it is that of the code that makes them.
    space = {"__name__": module, "kind": kind, "args": args, "given": given or {}}
    made: Any = eval("kind(*args, **given)", space)  # noqa: S307
    if made.__module__ != module:
        made.__module__ = module
    return made
