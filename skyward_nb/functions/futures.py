"""Calls in the background: a `Future` for each, and the threads that wait for them."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from skyward_nb.functions.rank_slots import StopsBy
from skyward_nb.words.units import read_seconds

R = TypeVar("R")
_SLICE = 0.1


class PoolFuture(Future[R]):
    """What `call > pool` gives: a `concurrent.futures.Future` whose `cancel` stops what runs already.

    Waiting for it in a notebook shows what its ranks show; an interrupt of the waiting cancels it.
    """

    def __init__(self, draw: Callable[[], None]) -> None:
        super().__init__()
        self._draw = draw
        self._stop: Callable[[], None] | None = None
        self._is_cancelled = False
        self._once = threading.Lock()

    def result(self, timeout: float | str | None = None) -> R:
        """Its value, or what it raised; CancelledError if cancelled.

        TimeoutError after `timeout`: seconds, or as in `"10m"`.
        """
        if (error := self.exception(timeout)) is not None:  # one may be falsy
            raise error
        return super().result(0)

    def exception(self, timeout: float | str | None = None) -> BaseException | None:
        """What it raised, or None; TimeoutError as `result`."""
        self._wait(read_seconds("timeout", timeout))
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        try:
            self._wait_for_it(timeout)
        except KeyboardInterrupt:
            self.cancel()
            raise

    def _wait_for_it(self, timeout: float | None) -> None:
        left = timeout
        while not self.done() and (left is None or left > 0):
            with contextlib.suppress(TimeoutError, CancelledError):
                super().exception(_SLICE if left is None else min(_SLICE, left))
            left = None if left is None else left - _SLICE
            self._draw()

    def cancel(self) -> bool:
        """Have it not run, or stop it on its ranks; False when it has ended."""
        if super().cancel():
            return True
        if self.done():
            return False
        with self._once:
            is_first, self._is_cancelled = not self._is_cancelled, True
            stop = self._stop if is_first else None
        if stop is not None:
            stop()
        return True

    def cancelled(self) -> bool:
        """Whether it was cancelled, and has ended."""
        return super().cancelled() or (self.done() and self._is_cancelled)

    @property
    def is_wanted(self) -> bool:
        """Whether nobody has cancelled it."""
        return not self._is_cancelled

    def stops_by(self, stop: Callable[[], None]) -> None:
        """It runs now, and this stops it; at once if it was cancelled meanwhile."""
        with self._once:
            self._stop = stop
            was_cancelled = self._is_cancelled
        if was_cancelled:
            stop()


class Workers:
    """At most so many threads, made when needed, that take work in order."""

    def __init__(self, most: int, name: str) -> None:
        self.most = most
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._given = 0
        """What is not done yet: as many threads as that are there, or all."""
        self._waiting: set[PoolFuture[Any]] = set()
        self._is_closed = False

    def submit(self, future: PoolFuture[Any], work: Callable[[StopsBy], Any]) -> None:
        """Have `work` done for a future; it gets a function that registers how to stop it. Once closed, cancel it."""

        def do() -> None:
            with self._lock:
                self._waiting.discard(future)
            if future.set_running_or_notify_cancel():
                fulfil(future, work)

        with self._lock:
            if not self._is_closed:
                self._waiting.add(future)
                self._work.put(do)
                self._given += 1
                if len(self._threads) < min(self._given, self.most):
                    thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                    self._threads.append(thread)
                    thread.start()
                return
        future.cancel()
        future.set_running_or_notify_cancel()

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            with self._lock:
                self._given -= 1

    def cancel(self) -> None:
        """Cancel what has not begun."""
        with self._lock:
            waiting = list(self._waiting)
        for future in waiting:
            future.cancel()

    def close(self) -> None:
        """Cancel what has not begun; what has ends with the pool."""
        with self._lock:
            self._is_closed = True
            threads = list(self._threads)
        self.cancel()
        for _ in threads:
            self._work.put(None)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(_PATIENCE)


_PATIENCE = 5.0


def fulfil(future: PoolFuture[Any], work: Callable[[StopsBy], Any]) -> None:
    """Do what a future is of, here and now; it gets a function that registers how to stop it."""
    try:
        value = work(future.stops_by)
    except BaseException as error:  # noqa: BLE001 - the future's `result` raises it
        interrupted = isinstance(error, KeyboardInterrupt)
        future.set_exception(CancelledError() if interrupted else error)
    else:
        future.set_result(value)


def joined(
    futures: Sequence[PoolFuture[Any]], draw: Callable[[], None]
) -> PoolFuture[tuple[Any, ...]]:
    """A future of the values of several; what one of them raises ends it. Cancelling it cancels all."""
    whole = _Joined(futures, draw)
    whole.set_running_or_notify_cancel()
    left, is_told = len(futures), False
    lock = threading.Lock()

    def ended(future: Future[Any]) -> None:
        nonlocal left, is_told
        error = CancelledError() if future.cancelled() else future.exception()
        with lock:
            left -= 1
            is_last = not is_told and (error is not None or not left)
            is_told |= is_last
        # Not within the lock: who hears of it may cancel the others.
        if is_last and error is not None:
            whole.set_exception(error)
        elif is_last:
            whole.set_result(tuple(each.result() for each in futures))

    for future in futures:
        future.add_done_callback(ended)
    if not futures:
        whole.set_result(())
    return whole


class _Joined(PoolFuture[tuple[Any, ...]]):
    def __init__(self, parts: Sequence[PoolFuture[Any]], draw: Callable[[], None]) -> None:
        super().__init__(draw)
        self._parts = parts

    def cancel(self) -> bool:
        """Cancel all of which it is made."""
        return True in [part.cancel() for part in self._parts]
