"""Functions of which some ranks show no output: what `sky.stdout`, `sky.stderr` and `sky.silent` make of one.

What such a function prints while it runs on a rank that is not to be heard travels as hidden: no picture shows
it, the log of the run keeps it. What C code and other processes write then is dropped. Outside a pool all of
it is shown.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import inspect
import os
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar, cast

from skyward_nb.runtime import event_sink
from skyward_nb.runtime.instance import instance_info
from skyward_nb.words.info import InstanceInfo

F = TypeVar("F", bound=Callable[..., Any])

Only = str | int | Iterable[int] | Callable[[InstanceInfo], bool]
"""`all`, `head` or `none`, ranks, or a function that says it of a rank's place."""

_DESCRIPTORS = {"stdout": 1, "stderr": 2}


def showing(fn: F, streams: tuple[str, ...], only: Only) -> F:
    """The function, whose output on these streams only some ranks show, however it is called there."""
    return within(fn, functools.partial(_gate, streams, only))


def within(fn: F, enter: Callable[[], contextlib.AbstractContextManager[None]]) -> F:
    """The function, which runs within what this makes, be it a generator or a coroutine."""
    if inspect.isasyncgenfunction(fn):

        async def call_async_generator(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            with enter():
                async for value in fn(*args, **kwargs):
                    yield value

        call: Callable[..., Any] = call_async_generator
    elif inspect.iscoroutinefunction(fn):

        async def call_coroutine(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            with enter():
                return await fn(*args, **kwargs)

        call = call_coroutine
    elif inspect.isgeneratorfunction(fn):

        def call_generator(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            with enter():
                return (yield from fn(*args, **kwargs))

        call = call_generator
    else:

        def call_function(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            with enter():
                return fn(*args, **kwargs)

        call = call_function
    return cast("F", functools.wraps(fn)(call))


def _gate(streams: tuple[str, ...], only: Only) -> contextlib.AbstractContextManager[None]:
    is_shown = not event_sink.is_connected() or _names(only, instance_info())
    return contextlib.nullcontext() if is_shown else _hidden(streams)


def _names(only: Only, here: InstanceInfo) -> bool:
    """Whether `only` names the rank that is here."""
    if isinstance(only, str):
        return only == "all" or (only == "head" and here.is_head)
    if isinstance(only, int):
        return here.rank == only
    return bool(only(here)) if callable(only) else here.rank in only


@contextlib.contextmanager
def _hidden(streams: tuple[str, ...]) -> Generator[None]:
    libc = ctypes.CDLL(None)
    libc.fflush(None)
    nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    kept = {stream: os.dup(_DESCRIPTORS[stream]) for stream in streams}
    event_sink.hide(streams)
    for stream in streams:
        os.dup2(nothing, _DESCRIPTORS[stream])
    try:
        yield
    finally:
        libc.fflush(None)
        for stream, descriptor in kept.items():
            os.dup2(descriptor, _DESCRIPTORS[stream])
            os.close(descriptor)
        os.close(nothing)
        event_sink.show(streams)
