"""Calls as they travel: a function with its arguments, packed as they were when the call was made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from skyward_nb.functions.function import Function, PendingFunction
from skyward_nb.functions.function_marks import Marks, marks_of
from skyward_nb.functions.rank_streams import Feeds
from skyward_nb.pickling.definitions import is_definition
from skyward_nb.pickling.payload import Bundle, pack
from skyward_nb.protocol.message_parts import Packed
from skyward_nb.runtime.function_calls import Batch, Call, raw_of
from skyward_nb.words.errors import PayloadError


@dataclass
class PackedCall:
    """A call that is ready to be sent; `packed` is where it lies in the ranks' store, if it had to wait."""

    name: str
    bundle: Bundle
    timeout: float | None = None
    packed: Packed | None = None
    feeds: Feeds = field(default_factory=Feeds)
    """The generators among its arguments."""
    marks: Marks = field(default_factory=Marks)


def pack_call(call: PendingFunction[Any]) -> PackedCall:
    """Pack a call as it is now; raises `PayloadError` naming the argument that cannot travel."""
    function = call.function
    feeds = Feeds()
    args = tuple(map(feeds.stand_in, call.args))
    kwargs = {name: feeds.stand_in(value) for name, value in call.kwargs.items()}
    made = Call(_lean(function), args, kwargs, function.is_stream)
    try:
        bundle = pack(f"{function.name}()", made, to_ranks=True)
    except PayloadError:
        _blame_argument(function.raw, call.args, call.kwargs)
        raise
    marks = marks_of(function.raw)
    return PackedCall(function.name, bundle, call.timeout, feeds=feeds, marks=marks)


def pack_batch(
    function: Callable[..., Any],
    items: Sequence[tuple[Any, ...]],
    first: int,
    timeout: float | None,
) -> PackedCall:
    """Pack calls of a function for these tuples of arguments, of which the first is item `first` of a map.

    Raises `PayloadError` naming the item and the argument that cannot travel.
    """
    name = name_of(function)
    lean = _lean(function) if isinstance(function, Function) else function
    try:
        bundle = pack(f"{name}()", Batch(lean, list(items), first), to_ranks=True)
    except PayloadError:
        for number, args in enumerate(items, first):
            _blame_argument(function, args, {}, f"item {number} of the map")
        raise
    return PackedCall(name, bundle, timeout, marks=marks_of(raw_of(function)))


def name_of(function: Callable[..., Any]) -> str:
    """What a function is called on the screen."""
    return getattr(function, "__qualname__", type(function).__name__)


def _lean(function: Function[..., Any]) -> Callable[..., Any]:
    """The object to send for a function: itself alone, if a label stands for it."""
    return function.raw if is_definition(function.raw) else function


def _blame_argument(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], note: str = ""
) -> None:
    """Raise `PayloadError` for the argument that cannot travel, by its own name, if it is one."""
    try:
        given = inspect.signature(raw_of(function)).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # some of C do not tell what they take
        given = {f"argument {number}": value for number, value in enumerate(args, 1)} | dict(kwargs)
    try:
        for name, value in given.items():
            pack(name, value, to_ranks=True)
    except PayloadError as error:
        if note:
            error.add_note(note)
        raise
