"""Reducers for types that a cell makes without a class: `NewType`, `ParamSpec`, `TypeVarTuple`, `type X = …`.

Python pickles them by the name under which their module has them, and the notebook's module is not on ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skyward_nb.pickling.reducers import name_of


def new_type(made: Any) -> Any:
    """A `typing.NewType`."""
    return _again(made, made.__name__, made.__supertype__)


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
    return _again(made, made.__name__, **given)


def alias(made: Any) -> Any:
    """A type that a statement has named: `type X = …`, of Python 3.12."""
    return _again(made, made.__name__, made.__value__, type_params=made.__type_params__)


def _again(made: Any, *args: Any, **given: Any) -> Any:
    """The name by which ranks find it, else its kind and what makes another one."""
    name = getattr(made, "__qualname__", made.__name__)
    return name_of(made, name) or (_make, (type(made), args, made.__module__, given))


def _make(
    kind: Callable[..., Any], args: tuple[Any, ...], module: str, given: dict[str, Any]
) -> Any:
    # Of some the module cannot be set: it is that of the code that makes them.
    space = {"__name__": module, "kind": kind, "args": args, "given": given}
    made: Any = eval("kind(*args, **given)", space)  # noqa: S307
    if made.__module__ != module:
        made.__module__ = module
    return made
