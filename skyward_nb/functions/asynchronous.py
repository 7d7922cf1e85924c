"""A pool in async code: what `async with sky.Compute() as pool` gives."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import threading
import weakref
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar, overload

from skyward_nb.functions.function import PendingFunction
from skyward_nb.functions.futures import PoolFuture, fulfil
from skyward_nb.functions.pool_operand import PoolOperand
from skyward_nb.functions.rank_set import RankSet
from skyward_nb.functions.rank_slots import OF_TASK
from skyward_nb.functions.rank_streams import RankStream
from skyward_nb.words.errors import PoolError

R = TypeVar("R")


class AsyncCompute(PoolOperand):
    """A pool, or some ranks of it, whose operators give what is awaited: `await (call @ pool)`.

    Cancelling the task that awaits stops what runs.
    """

    def __init__(self, pool: RankSet) -> None:
        self._pool = pool
        self._compute = pool.compute

    @property
    def head(self) -> AsyncCompute:
        """Rank 0."""
        return AsyncCompute(self._compute.head)

    def node(self, number: int) -> AsyncCompute:
        """The ranks of one node; IndexError where there is none of this number."""
        return AsyncCompute(self._compute.node(number))

    def rank(self, number: int) -> AsyncCompute:
        """One rank; IndexError where there is none of this number."""
        return AsyncCompute(self._compute.rank(number))

    @overload
    def run(  # pyright: ignore[reportOverlappingOverload]
        self, call: PendingFunction[Iterator[R] | AsyncIterator[R]]
    ) -> AsyncGenerator[R]: ...
    @overload
    def run(self, call: PendingFunction[R]) -> Coroutine[Any, Any, R]: ...
    def run(self, call: PendingFunction[Any]) -> Any:
        """What `await (call >> pool)` does: on one rank; its value. Of a generator, `async for` has the values."""
        if call.function.is_stream:
            return _values(self._pool._streams(call))
        return self._one(call)

    async def _one(self, call: PendingFunction[R]) -> R:
        await self._readied(call)
        return await _awaited(self._pool._submit(call, task=_number_of_task()))

    async def broadcast(self, call: PendingFunction[R]) -> list[R]:
        """What `await (call @ pool)` does: on every rank; their values in rank order."""
        await self._readied(call)
        return await _awaited(self._pool._submit(call, all_of=True, task=_number_of_task()))

    async def _readied(self, call: PendingFunction[Any]) -> None:
        """Prepare the ranks for what a function uses, not in the loop's thread: that waits until nothing runs there."""
        if not self._compute._is_ready(call.function):
            with WaitingThread() as thread:
                await thread.do(self._pool._calls.ready, call.function)

    def submit(self, call: PendingFunction[R]) -> PoolFuture[R]:
        """What `call > pool` does: a future, as everywhere."""
        return self._pool.submit(call)

    def submit_all(self, calls: Sequence[PendingFunction[Any]]) -> Future[tuple[Any, ...]]:
        """What `(a & b) > pool` does: a future of all their values, as everywhere."""
        return self._pool.submit_all(calls)

    async def run_all(self, calls: Sequence[PendingFunction[Any]]) -> tuple[Any, ...]:
        """What `await ((a & b) >> pool)` does: side by side, each on one rank."""
        going = [asyncio.ensure_future(self._one(call)) for call in calls]
        try:
            return tuple(await asyncio.gather(*going))
        finally:
            await _stopped(going)

    async def run_each(self, calls: Sequence[PendingFunction[R]]) -> AsyncGenerator[R]:
        """What `async for value in sky.gather(..., stream=True) >> pool` gives: values as calls end."""
        going = [asyncio.ensure_future(self._one(call)) for call in calls]
        try:
            for each in asyncio.as_completed(going):
                yield await each
        finally:
            await _stopped(going)

    @overload
    async def map(
        self,
        function: Callable[..., PendingFunction[R]],
        *items: Iterable[Any],
        timeout: float | None = None,  # noqa: ASYNC109 - of each batch on its rank
    ) -> list[R]: ...
    @overload
    async def map(
        self,
        function: Callable[..., Coroutine[Any, Any, R]],
        *items: Iterable[Any],
        timeout: float | None = None,  # noqa: ASYNC109 - of each batch on its rank
    ) -> list[R]: ...
    @overload
    async def map(
        self,
        function: Callable[..., R],
        *items: Iterable[Any],
        timeout: float | None = None,  # noqa: ASYNC109 - as above
    ) -> list[R]: ...
    async def map(
        self,
        function: Callable[..., Any],
        *items: Iterable[Any],
        timeout: float | None = None,  # noqa: ASYNC109 - as above
    ) -> list[Any]:
        """What `Compute.map` does."""
        future: PoolFuture[list[Any]] = PoolFuture(lambda: None)
        future.set_running_or_notify_cancel()
        work = partial(self._pool._mapped, function, items, timeout)
        # Those of the loop are few, and it needs them.
        do = _for_task(fulfil, future, work)
        threading.Thread(target=do, name="skyward-map", daemon=True).start()
        return await _awaited(future)

    def __repr__(self) -> str:
        return f"<async {self._pool!r}>"


async def _stopped(going: Sequence[asyncio.Future[Any]]) -> None:
    """End what still runs."""
    for each in going:
        each.cancel()
    await asyncio.gather(*going, return_exceptions=True)


async def _values(begin: Callable[..., Sequence[RankStream]]) -> AsyncGenerator[Any]:
    """The values of a rank's generator, for which a thread of its own waits."""
    # Those of the loop may all wait for ranks that only this generator's end sets free.
    with WaitingThread() as thread:
        stream = await _begun(thread, begin)
        try:
            while (value := await _next_of(thread, stream)) is not _END:
                yield value
        finally:
            with contextlib.suppress(PoolError, KeyboardInterrupt):  # it has ended, or was stopped
                await thread.do(stream.close)


class WaitingThread:
    """A thread that waits for a task of the loop."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "skyward-values")

    def __enter__(self) -> WaitingThread:
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown(wait=False)

    def do(self, work: Callable[..., R], *args: Any) -> asyncio.Future[R]:
        """Have it do something for the present task."""
        # A task would have the loop raise the KeyboardInterrupt of a run that was stopped.
        do = _for_task(work, *args)
        return asyncio.get_running_loop().run_in_executor(self._executor, do)


def _for_task(work: Callable[..., R], *args: Any) -> Callable[[], R]:
    """What does this in another thread for the present task, in its context."""
    context = contextvars.copy_context()
    context.run(OF_TASK.set, _number_of_task())
    return lambda: context.run(work, *args)


_tasks: weakref.WeakKeyDictionary[asyncio.Task[Any], int] = weakref.WeakKeyDictionary()
_numbers = itertools.count(-1, -1)


def _number_of_task() -> int:
    """A number below 0 of the present task, which no other one has had."""
    task = asyncio.current_task()
    return 0 if task is None else _tasks.setdefault(task, next(_numbers))


async def _begun(thread: WaitingThread, begin: Callable[..., Sequence[RankStream]]) -> RankStream:
    """The generator, once it has a rank; cancelling the task that waits for that leaves none."""
    stops: list[Callable[[], None]] = []
    is_wanted = True
    going = thread.do(begin, stops.append, lambda: is_wanted)
    try:
        await asyncio.wait([going])
    except asyncio.CancelledError:
        is_wanted = False
        for stop in stops:
            stop()
        await asyncio.wait([going])
        if going.exception() is None:
            await asyncio.wait([thread.do(stream.close) for stream in going.result()])
        raise
    (stream,) = going.result()
    return stream


async def _next_of(thread: WaitingThread, stream: RankStream) -> Any:
    """Its next value, or `_END`; cancelling the task that awaits it stops the generator."""
    going: asyncio.Future[Any] = thread.do(next, stream, _END)
    try:
        await asyncio.wait([going])
    except asyncio.CancelledError:
        stream.stop()
        await asyncio.wait([going])
        going.exception()  # it is known why it ended
        raise
    return going.result()


_END = object()


async def _awaited(future: PoolFuture[R]) -> R:
    """The result of a future; cancelling the task that awaits it cancels the future.

    A StopIteration leaves it as it leaves any coroutine, as the cause of a RuntimeError: a future of
    asyncio takes none, and who awaited that would wait forever.
    """
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def tell(_: Future[R]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(ended.set)

    future.add_done_callback(tell)
    try:
        await ended.wait()
    except asyncio.CancelledError:
        future.cancel()
        raise
    try:
        return future.result()
    except CancelledError:
        raise asyncio.CancelledError from None
