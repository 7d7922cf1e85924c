"""Which global names a piece of Python reads, and which it binds.

Pure: source in, two sets of names out. `statements` and `expressions` follow the code in the order
it runs: a name surely bound before its first use is not read from outside; in branches that may not
run it is. The body of a function counts from the moment the function's name is used. Of IPython's
magics (already transformed to calls) `cell/magic_syntax` knows what in their text is Python.

Blind spots, by nature: `eval`, `exec`, `globals()[...]`, what a star-import brings, and magics that
are not known. They are told as such; what such code binds, a rank finds out by looking.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from skyward_nb.cell.name_tracker import CellFindings
from skyward_nb.cell.statements import StatementVisitor


@dataclass(frozen=True)
class CellNames:
    """`reads`: global names used that the code did not surely bind first; `writes`: bound.

    `sure` are the writes that happen whenever the code ends without an exception, `imports` the
    modules it imports. `blind` are the places where names come and go that the source does not
    name, each as a person would write it: `from m import *`, `exec(...)`.
    """

    reads: frozenset[str]
    writes: frozenset[str]
    sure: frozenset[str] = frozenset()
    imports: frozenset[str] = frozenset()
    blind: tuple[str, ...] = ()


def cell_names(source: str) -> CellNames:
    """Names of Python source whose magics are already transformed; raises SyntaxError."""
    return names_of(ast.parse(source))


def names_of(tree: ast.Module, transform: Callable[[str], str] = str) -> CellNames:
    """Names of parsed Python; `transform` turns magics inside of magics into Python."""
    found = CellFindings(transform)
    walk = StatementVisitor(found)
    try:
        walk.block(tree.body)
    except RecursionError:
        return _names_anywhere(tree, transform)
    walk.use_all()
    return CellNames(
        frozenset(walk.reads),
        frozenset(walk.writes),
        frozenset(walk.state.bound & walk.writes - found.fragile),
        frozenset(found.imports),
        tuple(found.blind),
    )


def _names_anywhere(tree: ast.Module, transform: Callable[[str], str]) -> CellNames:
    """Names of code nested too deeply to be followed: all that it mentions, in any scope."""
    found = CellFindings(transform)
    walk = StatementVisitor(found)
    for node in ast.walk(tree):
        walk.state.own.clear()
        match node:
            case ast.Import() | ast.ImportFrom():
                walk.block([node])
            case ast.Name():
                walk.evaluate(node)
            case ast.Call():
                walk.call(node)
            case ast.Attribute():
                walk.attribute(node)
            case _:
                name = getattr(node, "name", None) or getattr(node, "rest", None)
                walk.writes |= {name} if isinstance(name, str) else set()
                if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                    walk.load(node.target.id)
    return CellNames(
        frozenset(walk.reads),
        frozenset(walk.writes),
        imports=frozenset(found.imports),
        blind=tuple(found.blind),
    )
