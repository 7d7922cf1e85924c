"""Expressions followed in the order they are evaluated: what they read, bind, and may run. Pure.

Plain nodes are followed by a loop, not by recursion, so that long chains of operators and calls
need no deep stack; what may not run, or runs in a scope of its own, has a handler in the table.
"""

from __future__ import annotations

import ast
import keyword
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

from skyward_nb.cell import magic_syntax, scopes
from skyward_nb.cell.name_state import Body, NameState, join
from skyward_nb.cell.name_tracker import UNSEEN, NameTracker
from skyward_nb.cell.scopes import Comprehension, Scope, kids

_AT_NAME = re.compile(r"@([^\W\d]\w*)")
_SHELL = {"user_ns", "user_global_ns", "run_cell", "run_cell_async", "run_code"}
_SHELL_CALLS = {"ex", "ev", "push", "execfile", "safe_execfile", "reset", "drop_by_id", "magic"}
_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
_MAGIC_CALLS = {"run_line_magic", "run_cell_magic", "system", "getoutput"}


class ExpressionVisitor(NameTracker, ABC):
    """Follows expressions, keeping what is known of names so far."""

    scopes: tuple[Scope, ...]
    state: NameState
    writes: set[str]
    deleted: set[str]

    @abstractmethod
    def block(self, body: Iterable[ast.stmt]) -> None:
        """Follow statements one after the other."""

    # ── expressions ─────────────────────────────────────────────────────────────────────

    def evaluate(self, *nodes: ast.AST | None) -> None:
        """Follow expressions and targets, one after the other."""
        stack: list[Any] = list(reversed(nodes))
        while stack:
            node = stack.pop()
            kind = node.__class__
            if kind is ast.Name:
                if node.ctx.__class__ is ast.Load:
                    self.load(node.id)
                elif node.ctx.__class__ is ast.Store:
                    self.bind(node.id)
                else:
                    self.delete(node.id)
            elif kind in _HANDLERS:
                _HANDLERS[kind](self, node)
            else:
                if kind is ast.Call:
                    self.call(node)
                elif kind is ast.Attribute:
                    self.attribute(node)
                below = kids(node)
                below.reverse()
                stack += below

    def test(self, node: ast.expr) -> tuple[NameState, NameState]:
        """Follow a condition: what is known where it holds, and where it does not."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            holds, fails = self.test(node.operand)
            return fails, holds
        if not isinstance(node, ast.BoolOp):
            self.evaluate(node)
            return self.state, self.state.copy()
        is_and = isinstance(node.op, ast.And)
        outs: list[NameState] = []
        goes_on = self.state
        for value in node.values:
            self.state = goes_on
            holds, fails = self.test(value)
            goes_on, out = (holds, fails) if is_and else (fails, holds)
            outs.append(out)
        return (goes_on, join(outs)) if is_and else (join(outs), goes_on)

    def _bool_op(self, node: ast.BoolOp) -> None:
        self.state = join(self.test(node))

    def _if_exp(self, node: ast.IfExp) -> None:
        holds, fails = self.test(node.test)
        self.state = holds
        self.evaluate(node.body)
        holds, self.state = self.state, fails
        self.evaluate(node.orelse)
        self.state = join([holds, self.state])

    def _compare(self, node: ast.Compare) -> None:
        first, *rest = node.comparators
        self.evaluate(node.left, first)
        if rest:
            with self.maybe():
                self.evaluate(*rest)

    def _dict(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            self.evaluate(key, value)

    def _named(self, node: ast.NamedExpr) -> None:
        self.evaluate(node.value)
        inside = self.scopes
        while self.scopes and self.scopes[-1].is_comprehension:
            self.scopes = self.scopes[:-1]
        self.bind(node.target.id)
        self.scopes = inside

    def _lambda(self, node: ast.Lambda) -> None:
        self.run([self.body_of_lambda(node)])

    def body_of_lambda(self, node: ast.Lambda) -> Body:
        """Follow a lambda's defaults, and tell what it does once it is called."""
        self.evaluate(*scopes.defaults(node))
        return self.body(node, lambda: scopes.function_scope(node), [ast.Expr(node.body)])

    def _comprehension(self, node: Comprehension) -> None:
        """In the order of its first turn: sources, targets and conditions, then the element."""
        first, *others = node.generators
        self.evaluate(first.iter)
        with self.maybe(), self.inside(scopes.comprehension_scope(node)):
            self.evaluate(first.target)
            self._conditions(first)
            for generator in others:
                self.evaluate(generator.iter, generator.target)
                self._conditions(generator)
            if isinstance(node, ast.DictComp):
                self.evaluate(node.key, node.value)
            else:
                self.evaluate(node.elt)

    def _conditions(self, generator: ast.comprehension) -> None:
        for condition in generator.ifs:
            self.state, _ = self.test(condition)

    # ── what has a scope of its own, or may not run ─────────────────────────────────────

    @contextmanager
    def inside(self, *inner: Scope) -> Generator[None]:
        """Follow code in scopes within this one."""
        around = self.scopes
        self.scopes = (*around, *inner)
        yield
        self.scopes = around

    @contextmanager
    def maybe(self) -> Generator[None]:
        """Follow what may not run, or not to its end."""
        before = self.state.copy()
        yield
        self.state = join([before, self.state])

    def body(self, node: ast.AST, scope: Callable[[], Scope], code: Sequence[ast.stmt]) -> Body:
        """What code in a scope of its own does, whenever it runs; followed once."""
        known = self.found.bodies.get(node)
        if known is None:
            walk = type(self)(self.found, (*self.scopes, scope()))
            walk.block(code)
            known = Body(frozenset(walk.reads), frozenset(walk.writes))
            self.found.bodies[node] = known
        return known

    # ── calls that say more than their names ────────────────────────────────────────────

    def attribute(self, node: ast.Attribute) -> None:
        """Look whether an attribute is a door to names that nobody sees."""
        attr = node.attr
        if attr in _SHELL or (attr in _SHELL_CALLS and _is_shell(node.value)):
            self.found.blind[f"get_ipython().{attr}"] = None
        elif attr in UNSEEN and _is_named(node.value, "builtins", "__builtins__"):
            self.found.blind[f"{attr}(...)"] = None

    def call(self, node: ast.Call) -> None:
        """Look whether a call is a magic's, or has names in a text."""
        func = node.func
        if isinstance(func, ast.Attribute):
            if func.attr in _MAGIC_CALLS and not _is_named(func.value, "os", "subprocess"):
                self._magic_call(func.attr, node.args)
            elif func.attr in ("query", "eval"):
                for text in _texts(node.args):
                    self._mentioned(" ".join(_AT_NAME.findall(text)))
        elif isinstance(func, ast.Name) and func.id in ("eval", "exec"):
            for text in _texts(node.args[:1]):
                self.python(text)

    def _magic_call(self, call: str, args: Sequence[ast.expr]) -> None:
        words = _texts(args)
        if call.startswith("run_"):
            cell = call == "run_cell_magic"
            if len(words) < (3 if cell else 2):
                self.found.blind[f"{call}(...)"] = None
            elif cell:
                self._magic(magic_syntax.cell_magic(words[0], words[1], words[2]))
            else:
                self._magic(magic_syntax.line_magic(words[0], words[1]))
        else:
            for word in words:
                self._magic(magic_syntax.shell(word))

    def _magic(self, magic: magic_syntax.Magic) -> None:
        if magic.blind:
            self.found.blind[magic.blind] = None
            # It may delete names, too.
            self.deleted |= self.state.bound
            self.state.bound.clear()
        self._mentioned(magic.mentions)
        for text in magic.texts:
            if magic_syntax.is_expression(text):
                self._scratch(lambda text=text: self.evaluate(_parse(text.strip()).body[0]))
        before = self.state.copy()
        if magic.scratch:
            self._scratch(lambda: [self.python(text) for text in magic.code])
        else:
            for text in magic.code:
                self.python(text)
        if magic.may_fail:
            self.state = join([before, self.state])
        for name in magic.binds:
            self.bind(name)
            if magic.may_fail:
                self.state.bound.discard(name)

    def _scratch(self, follow: Callable[[], object]) -> None:
        """Follow code that binds nothing here."""
        before, writes = self.state.copy(), set(self.writes)
        follow()
        self.state, self.writes = before, writes

    def _mentioned(self, text: str) -> None:
        for name in magic_syntax.WORD.findall(text):
            if not keyword.iskeyword(name):
                self.load(name)

    def python(self, text: str) -> None:
        """Follow Python that stands in a text; of what is none, every word may be a name."""
        for attempt in (self.found.transform, str):
            try:
                tree = _parse(attempt(text))
            except (SyntaxError, ValueError):
                continue
            self.block(tree.body)
            return
        self.found.blind[text.strip().partition("\n")[0]] = None
        self._mentioned(text)

    def annotation(self, note: ast.expr | None) -> frozenset[str]:
        """Follow an annotation; returns names that its strings will need once they are read."""
        if note is None:
            return frozenset()
        self.evaluate(note)
        names: set[str] = set()
        stack: list[ast.AST] = [note]
        while stack:
            node = stack.pop()
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if magic_syntax.is_expression(node.value):
                    tree = _parse(node.value.strip())
                    names |= {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
            elif isinstance(node, ast.Subscript) and last_name(node.value) == "Literal":
                continue
            else:
                stack += kids(node)
        places = [scopes.place(self.scopes, name) for name in names]
        return frozenset(key for key in places if key is not None and "." not in key)


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(text, "text", "exec", _FLAGS)


def _texts(nodes: Iterable[ast.expr]) -> list[str]:
    return [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def last_name(node: ast.AST) -> str:
    """`c` of `a.b.c` and of `a.b.c(...)`."""
    while isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_named(node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def _is_shell(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _is_named(node.func, "get_ipython")


_Handler = Callable[[ExpressionVisitor, Any], None]
_HANDLERS: dict[type, _Handler] = {
    ast.BoolOp: ExpressionVisitor._bool_op,
    ast.IfExp: ExpressionVisitor._if_exp,
    ast.Compare: ExpressionVisitor._compare,
    ast.Dict: ExpressionVisitor._dict,
    ast.NamedExpr: ExpressionVisitor._named,
    ast.Lambda: ExpressionVisitor._lambda,
    **dict.fromkeys(scopes.COMPREHENSIONS, ExpressionVisitor._comprehension),
}
