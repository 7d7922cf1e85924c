"""Scopes of Python: what a function or class binds for itself, where a name of its code lives. Pure.

Order does not matter here: whatever a function binds anywhere is its own everywhere. `statements`
adds the order.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

_NO_NODES = {
    "ctx", "op", "ops", "id", "attr", "name", "names", "asname", "arg", "module", "level", "kind",
    "conversion", "simple", "is_async", "type_comment", "kwd_attrs", "rest", "tag",
}  # fmt: skip
_fields: dict[type, tuple[str, ...]] = {ast.Constant: (), ast.MatchSingleton: ()}


@dataclass(frozen=True, slots=True)
class Scope:
    """One scope between the module and a piece of code.

    `local` are the names it binds, `declared` those it says are global. A class has a `prefix`,
    which makes keys of its names; `owner` is the name that its private names carry. A comprehension
    gives its walrus names to the scope around it; a scope of type parameters lets a class be seen.
    """

    local: frozenset[str]
    declared: frozenset[str] = frozenset()
    prefix: str = ""
    owner: str = ""
    is_comprehension: bool = False
    is_types: bool = False


def place(scopes: tuple[Scope, ...], name: str) -> str | None:
    """Where `name` lives: None for a function's local, else a key; a class's has a dot in it."""
    sees_classes = True
    for scope in reversed(scopes):
        if scope.prefix and not sees_classes:
            continue
        if name in scope.declared:
            break
        if name in scope.local:
            return scope.prefix + name if scope.prefix else None
        sees_classes = sees_classes and scope.is_types
    return global_name(scopes, name)


def global_name(scopes: tuple[Scope, ...], name: str) -> str:
    """What a global is called: private names carry the name of the class they stand in."""
    if name.startswith("__") and not name.endswith("__"):
        for scope in reversed(scopes):
            if scope.owner:
                return f"_{scope.owner}{name}"
    return name


def kids(node: object) -> list[ast.AST]:
    """What lies below a node, in about the order it is evaluated; without operators and contexts."""
    kind = node.__class__
    fields = _fields.get(kind)
    if fields is None:
        all_fields: tuple[str, ...] = getattr(kind, "_fields", ())
        fields = _fields[kind] = tuple(each for each in all_fields if each not in _NO_NODES)
    found: list[Any] = []
    for each in fields:
        value: Any = getattr(node, each, None)
        if value.__class__ is list:
            found += value
        elif value is not None:
            found.append(value)
    return found


def arguments(node: FunctionNode) -> list[ast.arg]:
    """Every argument of a function."""
    args = node.args
    stars = [arg for arg in (args.vararg, args.kwarg) if arg is not None]
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *stars]


def defaults(node: FunctionNode) -> list[ast.expr]:
    """The defaults of a function's arguments."""
    return [*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)]


def type_parameters(node: ast.AST) -> list[ast.AST]:
    """`T` of `def f[T]`, `class C[T]` and `type X[T]`."""
    return getattr(node, "type_params", [])


def types_scope(parameters: Iterable[ast.AST]) -> Scope:
    """The scope that type parameters make around a definition."""
    return Scope(frozenset(getattr(each, "name", "") for each in parameters), is_types=True)


def function_scope(node: FunctionNode) -> Scope:
    """The scope of a function's body."""
    own = _own_names(node.body if isinstance(node.body, list) else [node.body])
    local = (own.bound | {arg.arg for arg in arguments(node)} | {"__class__"}) - own.outer
    return Scope(frozenset(local - own.declared), frozenset(own.declared))


def class_scope(node: ast.ClassDef, prefix: str) -> Scope:
    """The scope of a class's own statements."""
    own = _own_names(node.body)
    local = (own.bound | {"__module__", "__qualname__"}) - own.outer - own.declared
    owner = node.name.lstrip("_")
    return Scope(frozenset(local), frozenset(own.declared), prefix, owner)


def comprehension_scope(node: Comprehension) -> Scope:
    """The scope of a comprehension: the names that its `for` parts bind."""
    own = _own_names(generator.target for generator in node.generators)
    return Scope(frozenset(own.bound), is_comprehension=True)


def imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Names that an import binds, but for those of a star."""
    for alias in node.names:
        if isinstance(node, ast.Import):
            yield alias.asname or alias.name.partition(".")[0]
        elif alias.name != "*":
            yield alias.asname or alias.name


def captured(pattern: ast.AST) -> Iterator[str]:
    """Names that a pattern of `match` binds."""
    for node in ast.walk(pattern):
        if isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest


@dataclass(slots=True)
class _Own:
    bound: set[str] = field(default_factory=set[str])
    declared: set[str] = field(default_factory=set[str])
    outer: set[str] = field(default_factory=set[str])


def _own_names(nodes: Iterable[ast.AST]) -> _Own:
    """What these nodes bind and declare in the scope they stand in.

    Of nested scopes only what is evaluated outside of them is looked into; a comprehension's
    walrus binds outside of it.
    """
    own = _Own()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        kind = node.__class__
        if kind is ast.Name:
            assert isinstance(node, ast.Name)
            if node.ctx.__class__ is not ast.Load:
                own.bound.add(node.id)
            continue
        if kind in _SCOPE_NODES:
            stack += _below_scope_node(node)
        else:
            stack += kids(node)
        if kind in _BINDERS:
            _take(own, node)
    return own


def _below_scope_node(node: ast.AST) -> list[ast.AST]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return [*node.decorator_list, *defaults(node)]
        case ast.Lambda():
            return [*defaults(node)]
        case ast.ClassDef():
            return [*node.decorator_list, *node.bases, *(each.value for each in node.keywords)]
        case ast.comprehension():
            return [node.iter, *node.ifs]
        case _:
            return []


def _take(own: _Own, node: ast.AST) -> None:
    match node:
        case ast.Import() | ast.ImportFrom():
            own.bound.update(imported(node))
        case ast.Global():
            own.declared.update(node.names)
        case ast.Nonlocal():
            own.outer.update(node.names)
        case ast.MatchMapping(rest=str(name)):
            own.bound.add(name)
        case _:
            name = getattr(node, "name", None)
            if isinstance(name, str):
                own.bound.add(name)


_SCOPE_NODES = {*FUNCTIONS, ast.Lambda, ast.ClassDef, ast.comprehension}
_BINDERS = {
    *FUNCTIONS, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal,
    ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping,
}  # fmt: skip
