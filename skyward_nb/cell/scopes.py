"""Names inside one scope: what it binds, and what its nested scopes read from outside. Pure.

Order does not matter here: a function's body may run at any time. `names` adds the order.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def bindings(nodes: Iterable[ast.AST]) -> set[str]:
    """Names these nodes bind in the scope they stand in."""
    found: set[str] = set()
    for node in nodes:
        for part in _own_scope(node):
            found |= _binds(part)
    return found


def free_names(node: ast.AST) -> tuple[set[str], set[str]]:
    """(global reads, global writes) of a lambda or comprehension, evaluated where it stands."""
    visitor = _Free()
    visitor.visit(node)
    return visitor.reads, visitor.writes


def body_names(node: FunctionNode) -> tuple[set[str], set[str]]:
    """(global reads, global writes) of a function's body, once it is called."""
    visitor = _Free()
    visitor.body(node)
    return visitor.reads, visitor.writes


def evaluated_at_definition(node: FunctionNode) -> Iterator[ast.expr]:
    """Parts of a function that run when it is defined: decorators, defaults, annotations."""
    yield from getattr(node, "decorator_list", ())
    yield from node.args.defaults
    yield from (default for default in node.args.kw_defaults if default is not None)
    if not isinstance(node, ast.Lambda):
        hidden = type_parameters(node)
        for note in (*(arg.annotation for arg in _arguments(node)), node.returns):
            if note is not None and not hidden:
                yield note


def type_parameters(node: ast.AST) -> set[str]:
    """Names of `def f[T]` and `class C[T]`."""
    return {parameter.name for parameter in getattr(node, "type_params", ())}


def _arguments(node: FunctionNode) -> Iterator[ast.arg]:
    args = node.args
    yield from (*args.posonlyargs, *args.args, *args.kwonlyargs)
    yield from (arg for arg in (args.vararg, args.kwarg) if arg is not None)


def _own_scope(node: ast.AST) -> Iterator[ast.AST]:
    """The node and what lies below it in the same scope; of nested scopes only their node.

    A comprehension's walrus binds outside of it, so comprehensions are looked into.
    """
    yield node
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(node, _COMPREHENSIONS) or isinstance(child, ast.comprehension):
            yield from (part for part in ast.walk(child) if isinstance(part, ast.NamedExpr))
        else:
            yield from _own_scope(child)


def _binds(node: ast.AST) -> set[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()):
            return {name}
        case ast.NamedExpr(target=ast.Name(id=name)):
            return {name}
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Import(names=names):
            return {alias.asname or alias.name.partition(".")[0] for alias in names}
        case ast.ImportFrom(names=names):
            return {alias.asname or alias.name for alias in names if alias.name != "*"}
        case ast.ExceptHandler(name=str(name)):
            return {name}
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return {name}
        case ast.MatchMapping(rest=str(name)):
            return {name}
        case _:
            return set()


class _Free(ast.NodeVisitor):
    """Collects names that resolve to no function scope between a use and the module."""

    def __init__(self) -> None:
        self.reads: set[str] = set()
        self.writes: set[str] = set()
        self._scopes: list[set[str]] = []
        self._globals: list[set[str]] = []

    def _is_global(self, name: str) -> bool:
        if self._globals and name in self._globals[-1]:
            return True
        return not any(name in scope for scope in self._scopes)

    def _inside(self, local: set[str], body: Iterable[ast.AST], declared: set[str]) -> None:
        self._scopes.append(local)
        self._globals.append(declared)
        for node in body:
            self.visit(node)
        self._scopes.pop()
        self._globals.pop()

    def visit_Name(self, node: ast.Name) -> None:
        if self._is_global(node.id):
            (self.writes if isinstance(node.ctx, ast.Store) else self.reads).add(node.id)
            if isinstance(node.ctx, ast.Del):
                self.writes.add(node.id)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name) and self._is_global(node.target.id):
            self.reads.add(node.target.id)
        self.generic_visit(node)

    def _function(self, node: FunctionNode) -> None:
        for part in evaluated_at_definition(node):
            self.visit(part)
        self.body(node)

    def body(self, node: FunctionNode) -> None:
        """Visit what runs when the function is called."""
        body = node.body if isinstance(node.body, list) else [node.body]
        own = [part for statement in body for part in _own_scope(statement)]
        declared = {name for part in own if isinstance(part, ast.Global) for name in part.names}
        outer = {name for part in own if isinstance(part, ast.Nonlocal) for name in part.names}
        bound = bindings(body)
        self.writes |= bound & declared
        arguments = {arg.arg for arg in _arguments(node)}
        local = (bound | arguments | type_parameters(node)) - declared - outer
        self._inside(local, body, declared)

    visit_FunctionDef = _function
    visit_AsyncFunctionDef = _function
    visit_Lambda = _function

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *node.bases, *(k.value for k in node.keywords)):
            self.visit(part)
        # A class's names are seen by its own statements, not by its methods. A name bound
        # there is taken as bound before its use; only its methods see past it.
        own = bindings(node.body)
        types = type_parameters(node)
        for statement in node.body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._inside(types, [statement], set())
            else:
                self._inside(own | types, [statement], set())

    def _comprehension(self, node: ast.AST) -> None:
        generators: list[ast.comprehension] = getattr(node, "generators", [])
        self.visit(generators[0].iter)
        local = bindings(generator.target for generator in generators)
        rest = [child for child in ast.iter_child_nodes(node) if child not in generators]
        for index, generator in enumerate(generators):
            rest += [*generator.ifs, *([generator.iter] if index else [])]
        self._inside(local, rest, set())

    visit_ListComp = _comprehension
    visit_SetComp = _comprehension
    visit_DictComp = _comprehension
    visit_GeneratorExp = _comprehension
