"""Events of names while code is followed: used, bound, deleted, given a body. Pure."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from skyward_nb.cell import scopes
from skyward_nb.cell.name_state import Body, NameState
from skyward_nb.cell.scopes import Scope

UNSEEN = {"exec", "eval", "globals", "locals", "vars"}


@dataclass
class CellFindings:
    """What is the same for all code of a cell, wherever it stands.

    `fragile` are the names that some body deletes, whenever it runs.
    """

    transform: Callable[[str], str]
    imports: set[str] = field(default_factory=set[str])
    blind: dict[str, None] = field(default_factory=dict[str, None])
    fragile: set[str] = field(default_factory=set[str])
    bodies: dict[ast.AST, Body] = field(default_factory=dict[ast.AST, Body])


class NameTracker:
    """Keeps what is known of names while code is followed.

    `made` logs the bodies defined, `deleted` the names deleted; loops and `try` ask what came to
    them since they began. Without `around` this is the cell's top level; a function's body has one
    of its own.
    """

    def __init__(self, found: CellFindings, around: tuple[Scope, ...] = ()) -> None:
        self.found = found
        self.scopes: tuple[Scope, ...] = around
        self.is_body: bool = bool(around)
        self.state: NameState = NameState()
        self.reads: set[str] = set()
        self.writes: set[str] = set()
        self.made: list[tuple[str, Body]] = []
        self.deleted: set[str] = set()

    def load(self, name: str) -> None:
        """The name is used here."""
        key = scopes.place(self.scopes, name) if self.scopes else name
        if key is None:
            return
        if "." in key:
            if key in self.state.later:
                self.run(self.state.later[key])
            if key in self.state.own:
                return
            key = scopes.global_name(self.scopes, name)
        self.touch(key)

    def touch(self, key: str) -> None:
        """A global name is used, and with it what it stands for."""
        state = self.state
        if key not in state.own:
            self.reads.add(key)
            if key in UNSEEN:
                self._unseen(key)
        if key in state.later:
            self.run(state.later[key])

    def _unseen(self, key: str) -> None:
        in_function = any(not (s.prefix or s.is_comprehension or s.is_types) for s in self.scopes)
        if not (in_function and key in ("locals", "vars")):
            self.found.blind[f"{key}(...)"] = None

    def run(self, bodies: Iterable[Body]) -> None:
        """These bodies may run now, and those that they use: each counts once."""
        own, later = self.state.own, self.state.later
        seen: set[Body] = set()
        todo = list(bodies)
        while todo:
            body = todo.pop()
            if body in seen:
                continue
            seen.add(body)
            self.writes |= body.writes
            self.reads |= body.reads - own
            for name in body.reads:
                todo += later.get(name, ())

    def bind(self, name: str) -> None:
        """The name gets a value."""
        key = scopes.place(self.scopes, name) if self.scopes else name
        if key is not None:
            if "." not in key:
                self.writes.add(key)
            self.state.bind(key)

    def delete(self, name: str) -> None:
        """The name is deleted, which needs it to be there."""
        key = scopes.place(self.scopes, name)
        if key is None:
            return
        if "." not in key:
            self.load(name)
            self.writes.add(key)
        self.unbind(key)

    def unbind(self, key: str) -> None:
        """The name has no value any more; a body may do that at any time."""
        self.state.drop(key)
        self.deleted.add(key)
        if self.is_body:
            self.found.fragile.add(key)

    def define(self, name: str, body: Body) -> None:
        """The name gets a value that runs `body` when it is used.

        Inside of a function there is no telling when: the body counts from here on.
        """
        self.bind(name)
        key = scopes.place(self.scopes, name)
        if key is None or (self.is_body and "." not in key):
            self.run([body])
        else:
            self.state.later[key] = (body,)
            self.made.append((key, body))
