"""What decorators of a function say: plugins that it uses, output that is shown.

They stand above or below `@sky.function`, or without it on functions that cells call. Plugins change nothing
of the function itself: `marks_of` tells of them, and of the output, to its caller on a pool. Where it is
called in a cell, the function hides its own output.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any, Literal, Never, TypeVar, cast, overload

from skyward_nb.options.plugin_options import options_of
from skyward_nb.plugins.choices import PluginChoice
from skyward_nb.runtime.output_gate import showing, within
from skyward_nb.words.errors import OptionError
from skyward_nb.words.info import InstanceInfo, as_seen
from skyward_nb.words.units import near_words

F = TypeVar("F", bound=Callable[..., Any])

Only = Literal["all", "head", "none"] | int | Iterable[int] | Callable[[InstanceInfo], bool]
"""Ranks whose output is shown: by a word, by number, or those for whose place a function says so."""

_WORDS = ("all", "head", "none")
_MARKS = "__sky_marks__"


@dataclass(frozen=True)
class Marks:
    """Plugins that a function uses, and which ranks' output is shown: those that all of a stream name."""

    uses: tuple[PluginChoice, ...] = ()
    stdout: tuple[Only, ...] = ()
    stderr: tuple[Only, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        # They are for who sends the function: ranks get none, no token, and no predicate of them.
        return tuple, ()


def marks_of(fn: object) -> Marks:
    """The marks of a function, as its decorators left them; empty where there are none."""
    while isinstance(fn, functools.partial):  # a method, and the object it is called on
        fn = fn.func
    found = getattr(fn, _MARKS, None)
    return found if isinstance(found, Marks) else Marks()


def stdout(*bare: Never, only: Only) -> Callable[[F], F]:
    """Show the standard output of some ranks only: `only` of "head", of ranks, or of a predicate.

    The predicate gets each rank's `InstanceInfo`. Raises `OptionError` for what names no ranks, TypeError
    for what is no function.
    """
    return _showing("stdout", bare, only)


def stderr(*bare: Never, only: Only) -> Callable[[F], F]:
    """Show the standard error of some ranks only, as `stdout` does for standard output."""
    return _showing("stderr", bare, only)


@overload
def silent(fn: F, /) -> F: ...
@overload
def silent() -> Callable[[F], F]: ...
def silent(fn: Any = None, /) -> Any:
    """Show no output of a function; its value and its exceptions come back as always.

    Raises TypeError for what is no function.
    """

    def mark(fn: F) -> F:
        return _show_only("silent", fn, ("stdout", "stderr"), "none")

    return mark if fn is None else mark(fn)


def used_by(fn: F, name: str, choice: PluginChoice) -> F:
    """Mark a function as using a plugin, for the decorator of this name.

    Raises TypeError for what is no plain function, `OptionError` where two plugins contradict one another.
    """
    raw = _plain(name, fn)
    marks = marks_of(raw)
    uses = (*marks.uses, choice)
    options_of(uses)
    setattr(raw, _MARKS, replace(marks, uses=uses))
    return fn


def shown(marks: Marks, infos: Iterable[InstanceInfo]) -> tuple[frozenset[int], frozenset[int]]:
    """Of ranks at these places, those whose standard output is shown, and whose standard error.

    Raises `OptionError` for a rank that the pool has not, and what a predicate raises.
    """
    places = tuple(infos)
    return _shown("stdout", marks.stdout, places), _shown("stderr", marks.stderr, places)


def _showing(stream: str, bare: tuple[object, ...], only: Any) -> Callable[[F], F]:
    if bare:
        raise TypeError(f'@sky.{stream} needs to know which ranks: @sky.{stream}(only="head")')
    chosen = _checked(only)

    def mark(fn: F) -> F:
        return _show_only(stream, fn, (stream,), chosen)

    return mark


def _show_only(name: str, fn: F, streams: tuple[str, ...], only: Only) -> F:
    """The function, marked as shown by some ranks only, and hiding its own output where a cell calls it."""
    raw = _plain(name, fn)
    marks = marks_of(raw)
    now = {stream: (*getattr(marks, stream), only) for stream in streams}
    return _in_place(fn, raw, showing(raw, streams, only), replace(marks, **now))


def run_within(fn: F, name: str, enter: Callable[[], AbstractContextManager[None]]) -> F:
    """The function, which runs within what this makes, for the decorator of this name."""
    raw = _plain(name, fn)
    return _in_place(fn, raw, within(raw, enter), marks_of(raw))


def _in_place(fn: F, raw: FunctionType, wrapped: FunctionType, marks: Marks) -> F:
    """What takes the place of the function that a decorator stands above."""
    setattr(wrapped, _MARKS, marks)
    if raw is fn:
        return cast("F", wrapped)
    cast("Any", fn).raw = wrapped
    return fn


def _plain(name: str, fn: object) -> FunctionType:
    """The function that a decorator stands above, also that of a `@sky.function` between them.

    Raises TypeError for what is no plain function.
    """
    raw = getattr(fn, "raw", None) if getattr(fn, "__sky_function__", False) is True else fn
    if not isinstance(raw, FunctionType):
        what = f"the class {_name_of(raw)}" if isinstance(raw, type) else f"a {type(raw).__name__}"
        raise TypeError(f"@sky.{name} decorates a function written with def, and this is {what}")
    return raw


def _name_of(fn: object) -> str:
    name = getattr(fn, "__name__", "f")
    return name if isinstance(name, str) else "f"


def _checked(only: Any) -> Only:
    if isinstance(only, str):
        if only not in _WORDS:
            near = near_words(only, _WORDS) or ", or ranks, or a function of sky.InstanceInfo"
            raise OptionError("only", f"only={only!r}: choose one of {', '.join(_WORDS)}{near}")
        return only
    if callable(only):
        return cast("Only", only)
    if not isinstance(only, Iterable):
        return _rank(only, only)
    return tuple(_rank(rank, only) for rank in only)


def _rank(rank: Any, only: Any) -> int:
    """The number of a rank that `only` names."""
    if not isinstance(rank, bool):
        try:
            number = operator.index(rank)
        except TypeError:
            number = -1
        if number >= 0:
            return number
    raise OptionError(
        "only",
        f"only={only!r}: write 'head', ranks as in [0, 2], or a function of sky.InstanceInfo",
    )


def _shown(stream: str, said: Iterable[Only], infos: tuple[InstanceInfo, ...]) -> frozenset[int]:
    ranks = {info.rank for info in infos}
    for only in said:
        if callable(only):
            ranks &= {info.rank for info in infos if _holds(stream, only, info)}
        elif not isinstance(only, str):
            ranks &= _existing(only, infos)
        elif only != "all":
            ranks &= {0} if only == "head" else set()
    return frozenset(ranks)


def _existing(only: int | Iterable[int], infos: tuple[InstanceInfo, ...]) -> set[int]:
    wanted = {only} if isinstance(only, int) else set(only)
    world = infos[0].world_size if infos else 0
    if infos and (beyond := sorted(rank for rank in wanted if rank >= world)):
        raise OptionError("only", f"only={beyond[0]}: the pool has ranks 0 to {world - 1}")
    return wanted


def _holds(stream: str, only: Callable[[InstanceInfo], bool], info: InstanceInfo) -> bool:
    try:
        return bool(only(as_seen(info)))
    except Exception as error:
        error.add_note(f"in only= of @sky.{stream}, for rank {info.rank}")
        raise
