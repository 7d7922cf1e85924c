"""The names whose values a cell may change in place: by a method that does, by an item, or through a part. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

_METHODS = {
    "append", "appendleft", "extend", "extendleft", "insert", "pop", "popleft", "popitem", "remove", "clear", "sort",
    "reverse", "rotate", "add", "discard", "update", "setdefault", "subtract", "difference_update",
    "intersection_update", "symmetric_difference_update",
}  # fmt: skip
"""Methods of Python's own containers that change them."""
_CALLED = re.compile(r"\.(\w+)\(")
_DELETES = re.compile(r"\bdel ")
_ITEM = re.compile(r"\]\s*(?:=(?!=)|[-+*/%@&|^<>]+=|,)")


def altered_names(tree: ast.AST, code: str) -> frozenset[str]:
    """Names that the code of this tree may alter; most code is only glanced at."""
    calls = not _METHODS.isdisjoint(_CALLED.findall(code))
    deletes = "del " in code and _DELETES.search(code)
    return frozenset(_found(tree)) if calls or deletes or _ITEM.search(code) else frozenset()


def _found(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=method)) if method in _METHODS:
                yield from _name_of(value)
            case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()):
                yield from _name_of(value)
            case _:
                pass


def _name_of(node: ast.expr) -> Iterator[str]:
    """The name at the root of `name`, `name[0]`, `name.part`."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id
