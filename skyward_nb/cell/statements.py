"""Statements in the order in which they run: branches, loops, `try`, definitions. Pure.

Where branches join, only what all of them establish is known. A loop or a `try` may end anywhere: what it
does not surely do counts as not done.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from skyward_nb.cell import scopes
from skyward_nb.cell.expressions import ExpressionVisitor, last_name
from skyward_nb.cell.name_state import Body, NameState, join
from skyward_nb.cell.name_tracker import CellFindings

_For = ast.For | ast.AsyncFor
_With = ast.With | ast.AsyncWith
_Def = ast.FunctionDef | ast.AsyncFunctionDef
_SWALLOW = {
    "suppress",
    "raises",
    "assertRaises",
    "assertRaisesRegex",
    "ExitStack",
    "AsyncExitStack",
}
_LET_THROUGH = {
    "open", "no_grad", "enable_grad", "inference_mode", "set_grad_enabled", "autocast", "closing",
    "catch_warnings", "TemporaryDirectory", "NamedTemporaryFile", "ThreadPoolExecutor",
    "ProcessPoolExecutor", "redirect_stdout", "redirect_stderr", "nullcontext", "urlopen",
}  # fmt: skip
_KEEP = {
    "cache", "lru_cache", "property", "cached_property", "staticmethod", "classmethod", "dataclass",
    "wraps", "jit", "njit", "setter", "getter", "deleter", "abstractmethod", "contextmanager",
    "no_grad", "inference_mode", "overload", "total_ordering", "singledispatch",
}  # fmt: skip
_DEEPEST_SECOND_TURN = 3


@dataclass(frozen=True)
class _Stretch:
    """Code that may end anywhere: the bodies that it defines, and the names that it deletes."""

    log: list[tuple[str, Body]]
    start: int
    deleted: set[str]

    def made(self) -> list[tuple[str, Body]]:
        """The bodies defined so far."""
        return list(dict.fromkeys(self.log[self.start :]))

    def ended(self, state: NameState) -> NameState:
        """`state`, weakened by what the code may have done since."""
        state.may_run(self.made())
        state.forget(self.deleted)
        return state


class StatementVisitor(ExpressionVisitor):
    """Follows statements in the order in which they run."""

    state: NameState
    deleted: set[str]

    def __init__(self, found: CellFindings, around: tuple[scopes.Scope, ...] = ()) -> None:
        super().__init__(found, around)
        self._breaks: list[list[NameState]] = []
        self._turns = 0

    def block(self, body: Iterable[ast.stmt]) -> None:
        """Follow statements one after the other, up to one that control does not pass."""
        for statement in body:
            if self.state.dead:
                break
            handler = _STATEMENTS.get(statement.__class__)
            if handler is None:
                self.evaluate(*scopes.kids(statement))
            else:
                handler(self, statement)

    def use_all(self) -> None:
        """Count every body defined here as run at the end."""
        for bodies in self.state.later.values():
            self.run(bodies)

    # ── plain statements ────────────────────────────────────────────────────────────────

    def _assign(self, node: ast.Assign) -> None:
        match node:
            case ast.Assign(value=ast.Lambda() as value, targets=[ast.Name(id=name)]):
                self.define(name, self.body_of_lambda(value))
            case _:
                self.evaluate(node.value, *node.targets)

    def _aug_assign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.load(node.target.id)
            self.evaluate(node.value, node.target)
        else:
            self.evaluate(node.target, node.value)

    def _ann_assign(self, node: ast.AnnAssign) -> None:
        self.evaluate(node.value)
        if node.value is not None or not isinstance(node.target, ast.Name):
            self.evaluate(node.target)
        in_function = bool(self.scopes) and not self.scopes[-1].prefix
        if not (node.simple and in_function):
            self._later(self.annotation(node.annotation))

    def _later(self, names: frozenset[str]) -> None:
        """Count the names in strings of annotations, which are needed when the class around them is used."""
        if not names:
            return
        if self.scopes and (prefix := self.scopes[-1].prefix):
            self.made.append((prefix, Body(names)))
        else:
            self.run([Body(names)])

    def _assert(self, node: ast.Assert) -> None:
        holds, self.state = self.test(node.test)
        self.evaluate(node.msg)
        self.state = holds

    def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.found.imports.add(alias.name)
            if alias.name == "__main__":
                self.found.blind["import __main__"] = None
        for name in scopes.imported(node):
            self.bind(name)

    def _import_from(self, node: ast.ImportFrom) -> None:
        imports = self.found.imports
        if node.names[0].name == "*":
            self.found.blind[f"from {'.' * node.level}{node.module or ''} import *"] = None
        if node.module and not node.level:
            imports.add(node.module)
            imports.update(f"{node.module}.{each.name}" for each in node.names if each.name != "*")
        for name in scopes.imported(node):
            self.bind(name)

    def _leave(self, node: ast.Return | ast.Raise | ast.Continue) -> None:
        self.evaluate(*scopes.kids(node))
        self.state.dead = True

    def _break(self, _: ast.Break) -> None:
        if self._breaks:
            self._breaks[-1].append(self.state.copy())
        self.state.dead = True

    def _nothing(self, _: ast.stmt) -> None:
        pass

    # ── branches ────────────────────────────────────────────────────────────────────────

    def _if(self, node: ast.If) -> None:
        ends: list[NameState] = []
        while True:
            holds, fails = self.test(node.test)
            self.state = holds
            self.block(node.body)
            ends.append(self.state)
            self.state = fails
            # A long chain of `elif` is followed by this loop, not by recursion.
            if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
                node = node.orelse[0]
                continue
            self.block(node.orelse)
            self.state = join([*ends, self.state])
            return

    def _match(self, node: ast.Match) -> None:
        self.evaluate(node.subject)
        ends: list[NameState] = []
        for case in node.cases:
            before = self.state.copy()
            self.evaluate(case.pattern)
            for name in scopes.captured(case.pattern):
                self.bind(name)
            if case.guard is not None:
                self.state, _ = self.test(case.guard)
            self.block(case.body)
            ends.append(self.state)
            self.state = before
            if case.guard is None and _takes_all(case.pattern):
                break
        else:
            ends.append(self.state)
        self.state = join(ends)

    # ── loops ───────────────────────────────────────────────────────────────────────────

    def _for(self, node: _For) -> None:
        self.evaluate(node.iter)

        def turn() -> NameState:
            over = self.state.copy()
            self.evaluate(node.target)
            self.block(node.body)
            return over

        self._loop(turn, node.orelse)

    def _while(self, node: ast.While) -> None:
        def turn() -> NameState:
            self.state, over = self.test(node.test)
            over.dead = isinstance(node.test, ast.Constant) and bool(node.test.value)
            self.block(node.body)
            return over

        self._loop(turn, node.orelse)

    def _loop(self, turn: Callable[[], NameState], orelse: Sequence[ast.stmt]) -> None:
        """Follow one turn, which returns what is known where the loop ends by itself.

        A second turn knows no less of names than the first, but may run bodies that the first defined: it
        is followed where there are any.
        """
        before = self.state.copy()
        self._breaks.append([])
        with self._stretch() as stretch:
            over = turn()
            if made := stretch.made():
                self.state = before
                self.state.may_run(made)
                if self._turns < _DEEPEST_SECOND_TURN:
                    self._turns += 1
                    over = turn()
                    self._turns -= 1
                else:
                    self.run(body for _, body in made)
                    over.own &= before.own
        ends = [over, *self._breaks.pop()]
        for end in ends:
            end.may_run(made)
            end.forget(stretch.deleted)
        self.state = over
        self.block(orelse)
        self.state = join([*ends[1:], self.state])

    # ── with, try ───────────────────────────────────────────────────────────────────────

    @contextmanager
    def _stretch(self) -> Generator[_Stretch]:
        """Follow code that may end anywhere."""
        around, self.deleted = self.deleted, set[str]()
        yield _Stretch(self.made, len(self.made), self.deleted)
        around |= self.deleted
        self.deleted = around

    def _with(self, node: _With) -> None:
        swallowed: NameState | None = None
        unknown: NameState | None = None
        with self._stretch() as stretch:
            for item in node.items:
                self.evaluate(item.context_expr)
                name = last_name(item.context_expr)
                if name in _SWALLOW and swallowed is None:
                    swallowed = self.state.copy()
                if name not in _LET_THROUGH and unknown is None:
                    unknown = self.state.copy()
                self.evaluate(item.optional_vars)
            self.block(node.body)
        for state in filter(None, (swallowed, unknown)):
            stretch.ended(state)
        if unknown is not None and self.state.dead:
            self.state = unknown
        elif swallowed is not None:
            self.state = join([swallowed, self.state])
        if unknown is not None:
            self.state.bound &= unknown.bound

    def _try(self, node: Any) -> None:
        before = self.state.copy()
        with self._stretch() as stretch:
            self.block(node.body)
            raised = stretch.ended(before.copy())
            self.block(node.orelse)
            ends = [self.state]
            for handler in node.handlers:
                self.state = raised.copy()
                self._handler(handler)
                ends.append(self.state)
            self.state = join(ends)
            if node.finalbody:
                self._finally(node.finalbody, stretch.ended(before))

    def _handler(self, handler: ast.ExceptHandler) -> None:
        self.evaluate(handler.type)
        if handler.name:
            self.bind(handler.name)
        self.block(handler.body)
        if handler.name and (key := scopes.place(self.scopes, handler.name)) is not None:
            self.unbind(key)

    def _finally(self, body: Sequence[ast.stmt], raised: NameState) -> None:
        """Follow what runs from anywhere in the `try`, and go on from where that ended."""
        end, self.state = self.state, raised
        with self._stretch() as stretch:
            self.block(body)
        stretch.ended(end)
        end.own |= self.state.own
        end.bound |= self.state.bound
        end.dead = end.dead or self.state.dead
        self.state = end

    # ── definitions ─────────────────────────────────────────────────────────────────────

    def _function(self, node: _Def) -> None:
        self.evaluate(*node.decorator_list, *scopes.defaults(node))
        with self._types(node):
            notes = [arg.annotation for arg in scopes.arguments(node)]
            names = [self.annotation(note) for note in (*notes, node.returns)]
            body = self.body(node, lambda: scopes.function_scope(node), node.body)
        self._decorated(node, [body, *(Body(each) for each in names if each)])

    def _class(self, node: ast.ClassDef) -> None:
        self.evaluate(*node.decorator_list)
        outer_mark = len(self.made)
        prefix = f"{id(node)}."
        with self._types(node):
            self.evaluate(*node.bases, *(each.value for each in node.keywords))
            scope = scopes.class_scope(node, prefix)
            with self.inside(scope):
                for name in ("__module__", "__qualname__"):
                    self.state.own.add(prefix + name)
                self.block(node.body)
        made = [(key, body) for key, body in self.made[outer_mark:] if key.startswith(prefix)]
        self.made[outer_mark:] = [
            each for each in self.made[outer_mark:] if not each[0].startswith(prefix)
        ]
        for keys in (self.state.own, self.state.bound):
            keys -= {key for key in keys if key.startswith(prefix)}
        for key, _ in made:
            self.state.later.pop(key, None)
        self._decorated(node, [body for _, body in made])

    def _decorated(self, node: _Def | ast.ClassDef, bodies: list[Body]) -> None:
        """Bind the name of a definition; a decorator may run the body before that."""
        whole = Body(
            frozenset[str]().union(*(body.reads for body in bodies)),
            frozenset[str]().union(*(body.writes for body in bodies)),
        )
        if any(last_name(each) not in _KEEP for each in node.decorator_list):
            self.run([whole])
        self.define(node.name, whole)

    def _type_alias(self, node: Any) -> None:
        with self._types(node):
            body = self.body(node, lambda: scopes.Scope(frozenset()), [ast.Expr(node.value)])
        self.define(node.name.id, body)

    @contextmanager
    def _types(self, node: ast.AST) -> Generator[None]:
        """Follow code in the scope of a definition's type parameters, if it has any."""
        parameters = scopes.type_parameters(node)
        with self.inside(*([scopes.types_scope(parameters)] if parameters else ())):
            self.evaluate(*parameters)
            yield


def _takes_all(pattern: ast.pattern) -> bool:
    """Whether a pattern matches every value."""
    if isinstance(pattern, ast.MatchOr):
        return any(_takes_all(each) for each in pattern.patterns)
    return isinstance(pattern, ast.MatchAs) and (
        pattern.pattern is None or _takes_all(pattern.pattern)
    )


_Handler = Callable[[StatementVisitor, Any], None]
_STATEMENTS: dict[type, _Handler] = {
    ast.Assign: StatementVisitor._assign,
    ast.AugAssign: StatementVisitor._aug_assign,
    ast.AnnAssign: StatementVisitor._ann_assign,
    ast.Assert: StatementVisitor._assert,
    ast.Import: StatementVisitor._import,
    ast.ImportFrom: StatementVisitor._import_from,
    ast.Break: StatementVisitor._break,
    ast.If: StatementVisitor._if,
    ast.Match: StatementVisitor._match,
    ast.While: StatementVisitor._while,
    ast.ClassDef: StatementVisitor._class,
    **dict.fromkeys((ast.Return, ast.Raise, ast.Continue), StatementVisitor._leave),
    **dict.fromkeys((ast.Global, ast.Nonlocal), StatementVisitor._nothing),
    **dict.fromkeys((ast.For, ast.AsyncFor), StatementVisitor._for),
    **dict.fromkeys((ast.With, ast.AsyncWith), StatementVisitor._with),
    **dict.fromkeys((ast.Try, ast.TryStar), StatementVisitor._try),
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef), StatementVisitor._function),
}
if (_type_alias := getattr(ast, "TypeAlias", None)) is not None:  # since Python 3.12
    _STATEMENTS[_type_alias] = StatementVisitor._type_alias
