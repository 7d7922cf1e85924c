"""`@sky.function`: what is called makes a `PendingFunction`, which runs nothing until a pool gets it.

train(3) >> pool     on one rank of the least busy node     its value
train(3) @ pool      on every rank                           a list, in rank order
train(3) > pool      on one rank, in the background          a `Future`
(a() & b()) >> pool  side by side, each on a rank            a tuple
"""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future
from types import FunctionType, ModuleType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    NoReturn,
    ParamSpec,
    Self,
    TypeVar,
    TypeVarTuple,
    overload,
)

from skyward_nb.reports.tracebacks import shortened

if TYPE_CHECKING:
    from skyward_nb.functions.asynchronous import AsyncCompute
    from skyward_nb.functions.rank_set import RankSet

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)
S = TypeVar("S")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


_known: weakref.WeakSet[FunctionType] = weakref.WeakSet()
"""Those of this program that `@sky.function` was said of."""


def known_functions() -> list[FunctionType]:
    """The functions of this process that are to be run on pools, by name."""
    return sorted(_known, key=lambda each: each.__qualname__)


class Function(Generic[P, R_co]):
    """A function to be run on pools; calling it makes a `PendingFunction` and runs nothing.

    `raw` is the function itself, `fn.local(...)` calls it here.
    """

    __sky_function__ = True

    def __init__(self, raw: Callable[P, R_co]) -> None:
        self.raw = raw
        functools.update_wrapper(self, raw)
        self._signature = _signature_of(raw)
        self.is_stream: bool = streams(raw)
        if isinstance(raw, FunctionType):
            _known.add(raw)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> PendingFunction[R_co]:
        """Note what to call it with; TypeError, here and now, where it does not take that."""
        if self._signature is not None:
            try:
                self._signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{self.name}() {error}") from None
        return PendingFunction(self, args, kwargs)

    def local(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the call here, without a pool."""
        return self.raw(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type) -> Function[P, R_co]: ...
    @overload
    def __get__(
        self: Function[Concatenate[Any, Q], R], instance: object, owner: type | None = None
    ) -> Function[Q, R]: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> Function[..., Any]:
        return self if instance is None else Method(self, instance)

    @property
    def name(self) -> str:
        """What the function is called."""
        return getattr(self.raw, "__qualname__", type(self.raw).__name__)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        module = sys.modules.get(getattr(self.raw, "__module__", None) or "__main__")
        if module is not None and module.__name__ != "__main__":
            found = _look_up(module, self.name)
            if found is self:
                return _look_up, (module, self.name)
        return type(self), (self.raw,)

    def __repr__(self) -> str:
        return f"<sky.function {self.name}>"

    if not TYPE_CHECKING:  # to a type checker these are errors as they stand

        def _not_called(self, _: object) -> NoReturn:
            raise TypeError(
                f"{self.name} is not called: give it its arguments first, {self.name}(...) >> pool"
            )

        __rshift__ = __matmul__ = __gt__ = __and__ = __rand__ = _not_called


class Method(Function[P, R_co]):
    """A function of a class, and the object it is called on."""

    def __init__(self, function: Function[..., R_co], instance: object) -> None:
        super().__init__(functools.partial(function.raw, instance))
        functools.update_wrapper(self, function.raw)
        self._function = function
        self._instance = instance

    @property
    def name(self) -> str:
        """What the function is called."""
        return self._function.name

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Method, (self._function, self._instance)


def streams(function: Callable[..., Any]) -> bool:
    """Whether what a function returns are values that come one by one."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _signature_of(raw: Callable[..., Any]) -> inspect.Signature | None:
    """What a function takes, if it tells."""
    try:
        return inspect.signature(raw)
    except ValueError:  # some of C do not
        return None


def _look_up(module: ModuleType, name: str) -> Any:
    """What a module has under a dotted name, or None."""
    found: Any = module
    for part in name.split("."):
        found = inspect.getattr_static(found, part, None)
    return found


@overload
def function(raw: Callable[P, AsyncGenerator[T, S]]) -> Function[P, Generator[T, S, None]]: ...
@overload
def function(raw: Callable[P, Coroutine[Any, Any, R]]) -> Function[P, R]: ...
@overload
def function(raw: Callable[P, R]) -> Function[P, R]: ...
def function(raw: Callable[..., Any]) -> Function[..., Any]:
    """Make a function that runs on pools: `@sky.function`, above all other decorators of sky.

    Plain, `async` and generator functions, lambdas, and methods in a class. Raises TypeError for
    what is none.
    """
    if isinstance(raw, Function):
        raise TypeError(f"{raw.name} is a sky.function already: one @sky.function is enough")
    if isinstance(raw, type):
        raise TypeError(
            f"@sky.function takes a function, and {raw.__name__} is a class: decorate its methods, "
            "or a function that makes one"
        )
    if isinstance(raw, staticmethod | classmethod | property):
        kind = type(raw).__name__
        raise TypeError(f"@sky.function goes below @{kind}: write @{kind} above it")
    if not callable(raw):
        raise TypeError(f"@sky.function takes a function, not {type(raw).__name__}")
    return Function(raw)


class PendingFunction(Generic[R_co]):
    """A call that has not run: a `sky.function` and its arguments."""

    def __init__(
        self,
        function: Function[..., R_co],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> None:
        self.function = function
        self.args = args
        self.kwargs: dict[str, Any] = kwargs or {}
        self.timeout = timeout

    def local(self) -> R_co:
        """Run the call here, without a pool."""
        return self.function.local(*self.args, **self.kwargs)

    def with_timeout(self, seconds: float) -> PendingFunction[R_co]:
        """The same call, stopped after so many seconds: `RunTimeout` then says where it was."""
        if isinstance(seconds, str) or not seconds > 0:
            raise ValueError(f"with_timeout({seconds!r}): give a number of seconds above 0")
        return PendingFunction(self.function, self.args, self.kwargs, seconds)

    @overload
    def __rshift__(self, pool: RankSet) -> R_co: ...
    @overload
    def __rshift__(
        self: PendingFunction[Iterator[T] | AsyncIterator[T]], pool: AsyncCompute
    ) -> AsyncGenerator[T]: ...
    @overload
    def __rshift__(self, pool: AsyncCompute) -> Coroutine[Any, Any, R_co]: ...
    @shortened
    def __rshift__(self, pool: Any) -> Any:
        return _doer(pool, ">>").run(self)

    @overload
    def __matmul__(self, pool: RankSet) -> list[R_co]: ...
    @overload
    def __matmul__(self, pool: AsyncCompute) -> Coroutine[Any, Any, list[R_co]]: ...
    @shortened
    def __matmul__(self, pool: Any) -> Any:
        return _doer(pool, "@").broadcast(self)

    @shortened
    def __gt__(self, pool: RankSet | AsyncCompute) -> Future[R_co]:
        return _doer(pool, ">").submit(self)

    def __and__(self, other: PendingFunction[S]) -> PendingGroup[R_co, S]:
        return PendingGroup((self, _pending(other, "&")))

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self} has not run, so it is neither true nor false. Run it with `>> pool` or "
            "`.local()`; a comparison such as `x > pool > y` needs parentheses"
        )

    def __iter__(self) -> NoReturn:
        raise TypeError(f"{self} has not run: iterate over `{self.function.name}(...) >> pool`")

    def __repr__(self) -> str:
        return f"<{self.function.name}(...), not run: >> pool, @ pool, > pool or .local()>"


class _SideBySide(Generic[V_co]):
    """Calls to be made side by side, with `V_co` as the type of all their values."""

    _made_by = "(a & b)"

    def __init__(self, calls: tuple[PendingFunction[Any], ...]) -> None:
        self.calls = calls

    def local(self) -> V_co:
        """Make them here, one after another."""
        return tuple(call.local() for call in self.calls)  # type: ignore[return-value]

    def with_timeout(self, seconds: float) -> Self:
        """The same calls, each stopped after so many seconds."""
        return type(self)(tuple(call.with_timeout(seconds) for call in self.calls))

    @overload
    def __rshift__(self, pool: RankSet) -> V_co: ...
    @overload
    def __rshift__(self, pool: AsyncCompute) -> Coroutine[Any, Any, V_co]: ...
    @shortened
    def __rshift__(self, pool: Any) -> Any:
        return _doer(pool, ">>").run_all(self.calls)

    @shortened
    def __gt__(self, pool: RankSet | AsyncCompute) -> Future[V_co]:
        return _doer(pool, ">").submit_all(self.calls)

    def __matmul__(self, pool: object) -> NoReturn:
        raise _not_on_every_rank(self._made_by)

    def __repr__(self) -> str:
        return f"<{len(self.calls)} calls, not run: >> pool, > pool or .local()>"


class PendingGroup(_SideBySide[tuple[*Ts]], Generic[*Ts]):
    """Calls to be made side by side, made by `&`; their values come as a tuple."""

    def __and__(self, other: PendingFunction[S]) -> PendingGroup[*Ts, S]:
        return PendingGroup((*self.calls, _pending(other, "&")))


class PendingGather(_SideBySide[tuple[R_co, ...]], Generic[R_co]):
    """Calls of one kind to be made side by side, made by `sky.gather`."""

    _made_by = "sky.gather(...)"


class PendingStream(Generic[R_co]):
    """Calls whose values come in the order in which they end, made by `sky.gather(stream=True)`."""

    def __init__(self, calls: tuple[PendingFunction[R_co], ...]) -> None:
        self.calls = calls

    def local(self) -> Iterator[R_co]:
        """Make them here, one after another."""
        return (call.local() for call in self.calls)

    def with_timeout(self, seconds: float) -> PendingStream[R_co]:
        """The same calls, each stopped after so many seconds."""
        return PendingStream(tuple(call.with_timeout(seconds) for call in self.calls))

    @overload
    def __rshift__(self, pool: RankSet) -> Iterator[R_co]: ...
    @overload
    def __rshift__(self, pool: AsyncCompute) -> AsyncIterator[R_co]: ...
    @shortened
    def __rshift__(self, pool: Any) -> Any:
        return _doer(pool, ">>").run_each(self.calls)

    def __repr__(self) -> str:
        return f"<{len(self.calls)} calls, not run: for value in ... >> pool>"


class _Doer:
    """What runs calls, as the operators ask it to."""

    run: Callable[..., Any]
    broadcast: Callable[..., Any]
    submit: Callable[..., Any]
    run_all: Callable[..., Any]
    run_each: Callable[..., Any]
    submit_all: Callable[..., Any]


def _doer(pool: Any, operator: str) -> _Doer:
    """The pool, or a target in it, behind an operator; raises TypeError for anything else."""
    if not getattr(type(pool), "__sky_pool__", False):
        raise TypeError(
            f"{operator} needs a pool on its right, as in `with sky.Compute() as pool`, not "
            f"{type(pool).__name__}"
        )
    return pool


def _pending(other: object, operator: str) -> PendingFunction[Any]:
    if isinstance(other, PendingFunction):
        return other
    kind = type(other).__name__
    if isinstance(other, Function):
        advice = f"{other.name} is not called: {other.name}(...)"
    elif isinstance(other, list | tuple | Iterator):
        advice = f"{kind} is not one: give them one by one, {operator}(*calls)"
    elif isinstance(other, Future):
        advice = "that is a future already: .result() has its value"
    elif operator == "&":
        advice = f"{kind} is not one: >> and @ come before &, so write (a() & b()) >> pool"
    else:
        advice = f"{kind} is not one: call the function, f(x)"
    raise TypeError(f"{operator} joins calls of sky.functions, and {advice}")


def _not_on_every_rank(what: str) -> TypeError:
    return TypeError(
        f"{what} @ pool: @ runs one function on every rank. Have one function call all of them, or "
        "write a @ pool and b @ pool"
    )


@overload
def gather(*calls: PendingFunction[R], stream: Literal[False] = False) -> PendingGather[R]: ...
@overload
def gather(*calls: PendingFunction[R], stream: Literal[True]) -> PendingStream[R]: ...
def gather(*calls: PendingFunction[R], stream: bool = False) -> PendingGather[R] | PendingStream[R]:
    """Calls that run side by side: `a, b = sky.gather(f(1), f(2)) >> pool`.

    With `stream`, `for value in sky.gather(..., stream=True) >> pool` gives values as calls end.
    Raises TypeError for other things than calls of a `sky.function`.
    """
    found = tuple(_pending(call, "sky.gather") for call in calls)
    return PendingStream(found) if stream else PendingGather(found)
