"""Which global names a piece of Python reads, and which it binds.

Pure: source in, two sets of names out. Statements are followed in the order they run: a name
surely bound before its first use is not read from outside; in branches that may not run it is.
The body of a function counts from the moment the function's name is used. Text of IPython's
magics (already transformed to calls) is searched for `{name}`, `$name` and, where the magic
takes Python, for code.

Blind spots, by nature: `eval`, `exec`, `globals()[...]`, and what a star-import brings. They are
told as such; what such code binds, a rank finds out by looking.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass

from skyward_nb.cell import scopes

_IN_MAGIC = re.compile(r"\{([^{}]+)\}|\$([A-Za-z_]\w*)")
_MAGIC_CALLS = {"run_line_magic", "run_cell_magic", "system", "getoutput"}
_CODE_MAGICS = {"time", "timeit", "prun", "capture"}
_OPAQUE_MAGICS = {"run", "pylab"}
_MAGIC_FLAGS = re.compile(r"^(?:\s*-\w+(?:\s+\d+)?)+\s*")


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


def names_of(tree: ast.Module) -> CellNames:
    """Names of parsed Python."""
    walk = _Walk()
    walk.block(tree.body)
    walk.use_all()
    imports, blind = _imports_and_blind_spots(tree)
    reads, writes, sure = map(frozenset, (walk.reads, walk.writes, walk.bound))
    return CellNames(reads, writes, sure, imports, blind)


def _imports_and_blind_spots(tree: ast.Module) -> tuple[frozenset[str], tuple[str, ...]]:
    imports: set[str] = set()
    blind: dict[str, None] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                imports.update(alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                imports.add(module)
                if names[0].name == "*":
                    blind[f"from {module} import *"] = None
                imports.update(f"{module}.{alias.name}" for alias in names)
            case ast.Call(func=ast.Name(id="exec" | "eval" | "globals" as name)):
                blind[f"{name}(...)"] = None
            case ast.Call(
                func=ast.Attribute(attr="run_line_magic"), args=[ast.Constant(value=word), *_]
            ):
                if word in _OPAQUE_MAGICS:
                    blind[f"%{word}"] = None
            case _:
                pass
    return frozenset(imports), tuple(blind)


class _Walk:
    """Follows statements in the order they run, keeping what is surely bound so far.

    `later` holds, for each function or class defined here, what its bodies will read and write
    once the name is used.
    """

    def __init__(self) -> None:
        self.reads: set[str] = set()
        self.writes: set[str] = set()
        self.bound: set[str] = set()
        self.later: dict[str, tuple[set[str], set[str]]] = {}

    # ── what happens to names ───────────────────────────────────────────────────────────

    def _touch(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.bound:
                self.reads.add(name)
            if name in self.later:
                reads, writes = self.later.pop(name)
                self._touch(reads)
                self.writes |= writes

    def _bind(self, names: Iterable[str]) -> None:
        for name in names:
            self.writes.add(name)
            self.bound.add(name)

    def use_all(self) -> None:
        """Take every body defined here as run at the end."""
        while self.later:
            self._touch([next(iter(self.later))])

    # ── expressions, in about the order they are evaluated ──────────────────────────────

    def _evaluate(self, *nodes: ast.AST | None) -> None:
        for node in nodes:
            match node:
                case None:
                    pass
                case ast.Name(id=name, ctx=ast.Load()):
                    self._touch([name])
                case ast.NamedExpr(target=target, value=value):
                    self._evaluate(value)
                    self._bind(scopes.bindings([target]))
                case ast.BoolOp(values=[first, *rest]):
                    self._evaluate(first)
                    self._maybe(*rest)
                case ast.IfExp(test=test, body=body, orelse=orelse):
                    self._evaluate(test)
                    self._maybe(body)
                    self._maybe(orelse)
                case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp():
                    self._nested(node)
                case ast.GeneratorExp():
                    self._nested(node)
                case ast.Call(func=ast.Attribute(attr=attr), args=args) if attr in _MAGIC_CALLS:
                    self._evaluate(*ast.iter_child_nodes(node))
                    self._magic(attr, args)
                case _:
                    self._evaluate(*ast.iter_child_nodes(node))

    def _maybe(self, *nodes: ast.AST) -> None:
        before = set(self.bound)
        self._evaluate(*nodes)
        self.bound = before

    def _nested(self, node: ast.AST) -> None:
        reads, writes = scopes.free_names(node)
        bound = scopes.bindings([node])
        self._touch(reads - bound)
        self.writes |= writes | bound

    def _magic(self, call: str, args: list[ast.expr]) -> None:
        texts = [arg.value for arg in args if isinstance(arg, ast.Constant)]
        words = [text for text in texts if isinstance(text, str)]
        if call.startswith("run_") and words and words[0] in _CODE_MAGICS:
            for text in words[1:]:
                self._magic_code(_MAGIC_FLAGS.sub("", text))
        for text in words:
            for expression, name in _IN_MAGIC.findall(text):
                self._magic_code(expression or name)

    def _magic_code(self, text: str) -> None:
        try:
            inner = ast.parse(text.strip())
        except SyntaxError:
            return
        self.block(inner.body)

    # ── statements ──────────────────────────────────────────────────────────────────────

    def block(self, body: Iterable[ast.stmt]) -> None:
        """Follow statements one after the other."""
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:  # noqa: C901 - a table of Python's statements
        match node:
            case ast.If(test=test, body=body, orelse=orelse):
                self._evaluate(test)
                self._branches(body, orelse)
            case ast.For() | ast.AsyncFor():
                self._for(node)
            case ast.While(test=test, body=body, orelse=orelse):
                self._evaluate(test)
                forever = isinstance(test, ast.Constant) and bool(test.value)
                self._branches(body, *([] if forever else [[]]))
                self.block(orelse)
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                for item in items:
                    self._evaluate(item.context_expr, item.optional_vars)
                    self._bind(scopes.bindings([item.optional_vars] if item.optional_vars else []))
                self.block(body)
            case ast.Try() | ast.TryStar():
                self._try(node)
            case ast.Match(subject=subject, cases=cases):
                self._evaluate(subject)
                self._cases(cases)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                self._evaluate(*scopes.evaluated_at_definition(node))
                self._bind([name])
                self._define(node, *scopes.body_names(node))
            case ast.ClassDef():
                self._class(node)
            case ast.AugAssign(target=target, value=value):
                if isinstance(target, ast.Name):
                    self._touch([target.id])
                self._evaluate(value, target)
                self._bind(scopes.bindings([target]))
            case ast.Assign(value=value, targets=targets):
                self._evaluate(value, *targets)
                self._bind(scopes.bindings(targets))
            case ast.AnnAssign(target=target, annotation=annotation, value=value):
                self._evaluate(annotation, value, target)
                self._bind(scopes.bindings([target]) if value is not None else [])
            case ast.Delete(targets=targets):
                self._evaluate(*targets)
                names = {target.id for target in targets if isinstance(target, ast.Name)}
                self._touch(names)
                self.writes |= names
                self.bound -= names
            case _:
                self._evaluate(*ast.iter_child_nodes(node))
                self._bind(scopes.bindings([node]) if isinstance(node, _BINDERS) else [])

    def _branches(self, *branches: list[ast.stmt]) -> None:
        """One of these runs, each from the same state; what all of them bind is sure."""
        before = self.bound
        ends: list[set[str]] = []
        for branch in branches:
            self.bound = set(before)
            self.block(branch)
            if not _leaves(branch):
                ends.append(self.bound)
        self.bound = set.intersection(*ends) if ends else before

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        self._evaluate(node.iter)
        before = set(self.bound)
        self._evaluate(node.target)
        self._bind(scopes.bindings([node.target]))
        self.block(node.body)
        self.bound = before
        self.block(node.orelse)

    def _try(self, node: ast.Try | ast.TryStar) -> None:
        before = set(self.bound)
        self.block(node.body)
        self.block(node.orelse)
        ends = [] if _leaves(node.body) else [self.bound]
        for handler in node.handlers:
            self.bound = set(before)
            self._evaluate(handler.type)
            own = {handler.name} if handler.name else set[str]()
            self._bind(own)
            self.block(handler.body)
            if not _leaves(handler.body):
                ends.append(self.bound - own)
        self.bound = set.intersection(*ends) if ends else before
        self.block(node.finalbody)

    def _cases(self, cases: list[ast.match_case]) -> None:
        before = set(self.bound)
        ends: list[set[str]] = []
        complete = False
        for case in cases:
            self.bound = set(before)
            self._evaluate(case.pattern)
            self._bind(scopes.bindings([case.pattern]))
            self._evaluate(case.guard)
            self.block(case.body)
            if not _leaves(case.body):
                ends.append(self.bound)
            bare = isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None
            complete = complete or (bare and case.guard is None)
        ends += [] if complete else [before]
        self.bound = set.intersection(*ends) if ends else before

    def _class(self, node: ast.ClassDef) -> None:
        self._evaluate(*node.decorator_list, *node.bases, *(k.value for k in node.keywords))
        body = _Walk()
        body.bound = scopes.type_parameters(node)
        methods = [part for part in node.body if isinstance(part, _FUNCTIONS)]
        for statement in node.body:
            if isinstance(statement, _FUNCTIONS):
                body._evaluate(*scopes.evaluated_at_definition(statement))
                body._bind([statement.name])
            else:
                body._statement(statement)
        reads: set[str] = set()
        writes: set[str] = set()
        for method in methods:
            method_reads, method_writes = scopes.body_names(method)
            reads |= method_reads - scopes.type_parameters(node)
            writes |= method_writes
        for late_reads, late_writes in body.later.values():
            reads |= late_reads
            writes |= late_writes
        self._touch(body.reads)
        self._bind([node.name])
        self._define(node, reads, writes)

    def _define(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef,
        reads: set[str],
        writes: set[str],
    ) -> None:
        """Keep what a body will do; a decorator may run it at once."""
        self.later[node.name] = reads - {node.name}, writes
        if node.decorator_list:
            self._touch([node.name])


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BINDERS = (
    ast.Import,
    ast.ImportFrom,
    *([alias] if (alias := getattr(ast, "TypeAlias", None)) else []),
)


def _leaves(body: list[ast.stmt]) -> bool:
    """Whether control surely leaves the block by its last statement."""
    return bool(body) and isinstance(body[-1], ast.Raise | ast.Return | ast.Continue | ast.Break)
