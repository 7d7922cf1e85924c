"""Functions called on ranks: with their arguments, or with many of them one after another."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

_WHICH = "item {} of the map"
Done = tuple[list[Any], float]
"""The values of a batch, and the seconds it took."""


@dataclass(frozen=True)
class Call:
    """A function and what to call it with."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    streams: bool = False
    """Whether it returns a generator whose values go home one by one."""

    def __call__(self) -> Any:
        """Call it."""
        return raw_of(self.function)(*self.args, **self.kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        """Less is packed so than with a dictionary of its fields."""
        return Call, (self.function, self.args, self.kwargs, self.streams)


@dataclass(frozen=True)
class Batch:
    """A function and many tuples of arguments; `first` is the number of the first."""

    function: Callable[..., Any]
    items: list[tuple[Any, ...]]
    first: int = 0

    def __call__(self) -> Done | Coroutine[Any, Any, Done]:
        """Call it with each; what one of them raises has a note that says which."""
        function = raw_of(self.function)
        if inspect.iscoroutinefunction(function):
            return self._awaited(function)
        began = time.perf_counter()
        values: list[Any] = []
        for number, args in enumerate(self.items, self.first):
            try:
                values.append(function(*args))
            except Exception as error:
                error.add_note(_WHICH.format(number))
                raise
        return values, time.perf_counter() - began

    async def _awaited(self, function: Callable[..., Any]) -> Done:
        """Await it with each, one after another."""
        began = time.perf_counter()
        values: list[Any] = []
        for number, args in enumerate(self.items, self.first):
            try:
                values.append(await function(*args))
            except Exception as error:
                error.add_note(_WHICH.format(number))
                raise
        return values, time.perf_counter() - began


def raw_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself of a `sky.function`."""
    return function.raw if getattr(type(function), "__sky_function__", False) else function  # type: ignore[attr-defined]
