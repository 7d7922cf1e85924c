"""Knowledge of names at one point of a cell, and the effects of bodies once they run. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, eq=False, slots=True)
class Body:
    """What code that runs later reads and binds of the global names: a function's, a class's."""

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()


@dataclass(slots=True)
class NameState:
    """What is known at one point of the code.

    `own` are names whose value from outside can no longer be seen, since the cell bound or deleted
    them; `bound` those that surely are bound now, if all that may swallow an exception does.
    `later` are the bodies that may run when a name is used. Past a point that control never comes
    from, the state is `dead`.
    """

    own: set[str] = field(default_factory=set[str])
    bound: set[str] = field(default_factory=set[str])
    later: dict[str, tuple[Body, ...]] = field(default_factory=dict[str, tuple[Body, ...]])
    dead: bool = False

    def copy(self) -> NameState:
        """The same knowledge, to go another way with."""
        return NameState(set(self.own), set(self.bound), dict(self.later), self.dead)

    def bind(self, key: str) -> None:
        """A name has a value of the cell's now, and what its old value did is gone."""
        self.own.add(key)
        self.bound.add(key)
        self.later.pop(key, None)

    def drop(self, key: str) -> None:
        """A name is deleted. Of a class's name, the global one behind it can be seen again."""
        self.own.add(key)
        self.forget([key])
        self.later.pop(key, None)

    def forget(self, keys: Iterable[str]) -> None:
        """These may have been deleted."""
        for key in keys:
            self.bound.discard(key)
            if "." in key:
                self.own.discard(key)

    def may_run(self, made: Iterable[tuple[str, Body]]) -> None:
        """These names may stand for these bodies, too."""
        for key, body in made:
            known = self.later.get(key, ())
            if body not in known:
                self.later[key] = (*known, body)


def join(states: Iterable[NameState]) -> NameState:
    """The state in which branches meet; dead ones do not count, unless all are dead."""
    states = list(states)
    alive = [state for state in states if not state.dead] or states[:1]
    first, *others = alive
    joined = first.copy()
    for other in others:
        joined.own &= other.own
        joined.bound &= other.bound
        if joined.later != other.later:
            joined.may_run((key, body) for key, bodies in other.later.items() for body in bodies)
    return joined
