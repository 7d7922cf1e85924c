"""What an `__init__` or a `compile` does with what it is given, as far as its source says so."""

from __future__ import annotations

import ast
import contextlib
import inspect
import itertools
import textwrap
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from skyward_nb.words.source_code import parse

OF_EVERY = frozenset(("name", "trainable", "dtype"))
"""What Keras takes of each layer or metric, and keeps itself."""
OF_EVERY_LAYER = OF_EVERY | {"reduction"}
"""Also of each loss."""
_trees: weakref.WeakKeyDictionary[Any, ast.AST | None] = weakref.WeakKeyDictionary()
"""A model has many layers of a class, and each of these is asked for several things."""


def _tree_of(function: Callable[..., Any]) -> ast.AST | None:
    """The source of a function, where it is to be had."""
    if function not in _trees:
        tree: ast.AST | None = None
        with contextlib.suppress(OSError, TypeError, SyntaxError):
            tree = parse(textwrap.dedent(inspect.getsource(function)))
        _trees[function] = tree  # now that it is whole: other threads ask, too
    return _trees[function]


def given_to_base(made: Callable[..., Any], takes: Sequence[str]) -> set[str]:
    """The names of what an `__init__` itself gives to that of its base, which takes these in turn."""
    tree = _tree_of(made)
    return set() if tree is None else {name for name, _ in _given(tree, takes)}


def _given(tree: ast.AST, takes: Sequence[str]) -> Iterator[tuple[str, ast.expr]]:
    for each in _calls(tree, "__init__"):
        for keyword in each.keywords:
            if keyword.arg is not None:
                yield keyword.arg, keyword.value
        in_turn = itertools.takewhile(lambda arg: not isinstance(arg, ast.Starred), each.args)
        # `Base.__init__(self, ...)` names the object first.
        names_self = not (
            isinstance(each.func, ast.Attribute) and isinstance(each.func.value, ast.Call)
        )
        yield from zip(takes, [*in_turn][names_self:], strict=False)


def _calls(tree: ast.AST, method: str) -> Iterator[ast.Call]:
    for each in ast.walk(tree):
        match each:
            case ast.Call(func=ast.Attribute(attr=called)) if called == method:
                yield each
            case _:
                pass


def is_passed_on(
    made: Callable[..., Any], several: str, takes: Sequence[str], known: Collection[str]
) -> bool:
    """Whether an `__init__` gives its `*args` or `**kwargs` to that of its base, which takes these, and keeps nothing of them itself.

    What it takes of them, or adds, is harmless where it is `known` otherwise, or given to the base as it is. Where its
    source is not to be had, it is taken to give them on: most do.
    """
    if (tree := _tree_of(made)) is None:
        return True
    harmless: list[ast.expr] = []
    on_as_they_are = _taken_for_base(tree, takes)
    for each in ast.walk(tree):
        match each:
            case ast.Call(func=ast.Attribute(attr="__init__")):
                harmless += [arg.value for arg in each.args if isinstance(arg, ast.Starred)]
                harmless += [keyword.value for keyword in each.keywords if keyword.arg is None]
            case ast.Call(
                func=ast.Attribute(value=asked, attr="setdefault" | "pop" | "get" as way),
                args=[ast.Constant(value=name), *_],
            ) if each in on_as_they_are or name in (OF_EVERY_LAYER if way == "pop" else known):
                harmless.append(asked)
            case ast.If(test=asked):
                harmless.append(asked)
            case _:
                pass
    uses = [each for each in ast.walk(tree) if isinstance(each, ast.Name) and each.id == several]
    return all(any(each is one for one in harmless) for each in uses)


def _taken_for_base(tree: ast.AST, takes: Sequence[str]) -> list[ast.expr]:
    """Calls such as `kwargs.pop("axis", 1)` whose results are given to the base as its `axis`, at once or once they are kept."""
    given = [*_given(tree, takes)]
    names: dict[str, str] = {ast.unparse(value): name for name, value in given}
    for each in ast.walk(tree):
        match each:
            case ast.Assign(targets=[target], value=value):
                given.append((names.get(ast.unparse(target), ""), value))
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                given.append((names.get(ast.unparse(target), ""), value))
            case _:
                pass
    asked = [(name, _asked_of(value)) for name, value in given]
    return [each for name, each in asked if each is not None and _says(each.args[0], name)]


def _asked_of(value: ast.expr) -> ast.Call | None:
    """The call that a value is had by, where it comes to the same if it is made of itself once more: `int(kwargs.pop("units", 3))`."""
    match value:
        case ast.Call(
            func=ast.Name(id="int" | "float" | "str" | "bool" | "tuple" | "list"), args=[of]
        ):
            return _asked_of(of)
        case ast.BoolOp(op=ast.Or(), values=[first, *_]):
            return _asked_of(first)
        case ast.Call(args=[_, *_]):
            return value
        case _:
            return None


def _says(argument: ast.expr, name: str) -> bool:
    return isinstance(argument, ast.Constant) and argument.value == name


def asked_of_several(made: Callable[..., Any]) -> set[str]:
    """What an `__init__` takes of its `**kwargs` by name: `super().__init__(dtype=kwargs.pop("dtype", None))`."""
    found: set[str] = set()
    taken = inspect.signature(made).parameters.values()
    several = {each.name for each in taken if each.kind is each.VAR_KEYWORD}
    for each in () if (tree := _tree_of(made)) is None else ast.walk(tree):
        match each:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=asked), attr="pop" | "get"),
                args=[ast.Constant(value=str(name)), *_],
            ) if asked in several:
                found.add(name)
            case _:
                pass
    return found


def is_given_on(compiles: Callable[..., Any], name: str) -> bool:
    """Whether a `compile` gives an argument on to that of its base, as it came; where that is not to be seen, yes."""
    if (tree := _tree_of(compiles)) is None:
        return True
    given = [
        value
        for each in _calls(tree, "compile")
        for value in (*each.args, *(keyword.value for keyword in each.keywords))
    ]
    return any(isinstance(each, ast.Name) and each.id == name for each in given)
