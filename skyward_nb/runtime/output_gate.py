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
import threading
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar, cast

from skyward_nb.runtime import event_sink
from skyward_nb.runtime.instance import instance_info
from skyward_nb.words.info import InstanceInfo

F = TypeVar("F", bound=Callable[..., Any])

Only = str | int | Iterable[int] | Callable[[InstanceInfo], bool]
"""`all`, `head` or `none`, ranks, or a function that says it of a rank's place."""

_DESCRIPTORS = {"stdout": 1, "stderr": 2}
_turn = threading.Lock()
_dropped: dict[str, int] = {}
"""By stream, how many functions that run now have what is written to its descriptor dropped."""
_leads_to: dict[str, int] = {}
"""By stream, a copy of its descriptor from before the first of them."""


def showing(fn: F, streams: tuple[str, ...], only: Only) -> F:
    """The function, whose output on these streams only some ranks show, however it is called there."""
    return within(fn, functools.partial(_gate, streams, only))


def within(fn: F, enter: Callable[[], contextlib.AbstractContextManager[None]]) -> F:
    """The function, which runs within what this makes, be it a generator or a coroutine."""
    if inspect.isasyncgenfunction(fn):
        call: Callable[..., Any] = _async_generator_within(fn, enter)
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


def _async_generator_within(
    fn: Callable[..., Any], enter: Callable[[], contextlib.AbstractContextManager[None]]
) -> Callable[..., Any]:
    async def call_async_generator(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        values = fn(*args, **kwargs)
        step = anext(values)
        with enter():
            try:
                while True:
                    value = await step
                    try:
                        step = values.asend((yield value))
                    except Exception as thrown:  # noqa: BLE001 - whatever is thrown into it
                        step = values.athrow(thrown)
            except StopAsyncIteration:
                return
            finally:
                await values.aclose()

    return call_async_generator


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
    with contextlib.ExitStack() as stack:
        for stream in streams:
            _drop(stream)
            stack.callback(_restore, stream)
        token = event_sink.hide(streams)
        stack.callback(event_sink.show, token)
        yield


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _drop(stream: str) -> None:
    """Have what C code and other processes write to a stream dropped, until each such call is taken back."""
    _libc().fflush(None)
    with _turn:
        if not _dropped.get(stream):
            _leads_to[stream] = os.dup(_DESCRIPTORS[stream])
            nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(nothing, _DESCRIPTORS[stream])
            os.close(nothing)
        _dropped[stream] = _dropped.get(stream, 0) + 1


def _restore(stream: str) -> None:
    """Take back one `_drop`."""
    _libc().fflush(None)
    with _turn:
        _dropped[stream] -= 1
        if not _dropped[stream]:
            before = _leads_to.pop(stream)
            os.dup2(before, _DESCRIPTORS[stream])
            os.close(before)
