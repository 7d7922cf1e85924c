"""Generators over the line: a rank's values as a generator here, and ours as one there."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from types import TracebackType
from typing import Any

from skyward_nb.functions.function import Function
from skyward_nb.functions.owed_interrupts import at_drop, raise_if_owed
from skyward_nb.functions.told_to_end import signal_of
from skyward_nb.pickling.payload import Bundle, pack, unpack
from skyward_nb.pool.outcome import ActiveRun, RunLeft
from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.commands import FeedValue, Resume
from skyward_nb.protocol.events import Event, ValueWanted, Yielded
from skyward_nb.protocol.message_parts import Packed
from skyward_nb.reports.execution import Execution
from skyward_nb.runtime.remote_generators import AHEAD, RemoteGenerator, heeds_what_is_sent
from skyward_nb.words.errors import SkyError

_LOOKS = 10
_FOLLOWS = 0.05
"""Seconds between two looks while another thread listens."""


class Feeds:
    """The generators among a call's arguments: they stay here, and ranks ask for their values."""

    def __init__(self) -> None:
        self._sources: list[Iterator[Any]] = []
        self._for_rank: dict[int, list[Iterator[Any]]] = {}
        self.error: BaseException | None = None
        """What one of them raised."""
        self._given: dict[tuple[int, int], str] = {}
        """By rank and generator, its value in the store: until the next one is requested."""

    def stand_in(self, value: object) -> object:
        """What to send in the place of an argument."""
        if not isinstance(value, Generator):
            return value
        self._sources.append(value)
        return RemoteGenerator(len(self._sources) - 1)

    def __bool__(self) -> bool:
        return bool(self._sources)

    def begin(self, ranks: Collection[int]) -> None:
        """These ranks will ask; each gets all values."""
        copies = [itertools.tee(source, len(ranks)) for source in self._sources]
        self._for_rank = {
            rank: [copy[place] for copy in copies] for place, rank in enumerate(ranks)
        }

    def feed(self, pool: Pool, event: ValueWanted) -> None:
        """Give a rank the value that it wants; a generator that fails has the run stopped."""
        before = self._given.pop((event.rank, event.stream), None)
        if before is not None:
            store, stores = pool.context.stores.of((event.rank,)), pool.context.stores
            others = (rank for (rank, _), each in self._given.items() if each == before)
            if not any(stores.of((rank,)) is store for rank in others):
                store.drop({before})
        try:
            with pool.lines.board.outside(for_user=True):
                value = next(self._for_rank[event.rank][event.stream])
            bundle = pack("a value of the generator", value, salt=(event.run, event.stream))
            packed = _stowed(pool, bundle, event.rank)
            if packed.data is None:
                self._given[event.rank, event.stream] = packed.digest
        except StopIteration:
            packed = None
        except BaseException as error:  # noqa: BLE001 - a user's generator, or a person's interrupt
            self.error = self.error or error
            if isinstance(error, KeyboardInterrupt):
                pool.driver.owe_interrupt()  # where nobody reads what comes of it
            pool.interrupt(event.run)
            return
        pool.lines.send(FeedValue(event.run, (event.rank,), event.stream, packed))


def _stowed(pool: Pool, what: Bundle, rank: int) -> Packed:
    with pool.closing.reaching():
        return what.stow(pool.context.stores.of((rank,)))


class StreamRun:
    """A run whose ranks yield values; each has its `RankStream`."""

    def __init__(
        self,
        execution: Execution,
        function: Function[..., Any],
        end: Callable[[], Mapping[int, Any]],
        owned: Callable[[], None],
    ) -> None:
        self.pool: Pool = execution.pool
        self._run = run = execution.run
        self._watch = execution.watch
        self._end = end
        self._ended: Mapping[int, Any] | None = None
        self._error: BaseException | None = None
        self._owned = owned
        self.name: str = f"{function.name}()"
        self.ranks: tuple[int, ...] = run.state.ranks
        self.heeds: bool = _heeds(function.raw)
        self.waiting: dict[int, deque[Packed]] = {rank: deque() for rank in run.state.ranks}
        self._coming: list[Packed] = []
        """Those that are just fetched."""
        self.pool.driver.read_by(self)
        self.open: set[int] = set(run.state.ranks)
        self._taken = 0
        self._listens = threading.RLock()
        """Of several threads that read it, one listens."""
        self._ends = threading.RLock()
        execution.handlers[Yielded] = self._take

    def next_of(self, rank: int) -> Any:
        """The next value of a rank; raises StopIteration with its generator's return value, or the run's error."""
        queue = self.waiting[rank]
        if not queue and not self._is_over:
            self._await(lambda: self._is_there(rank))
            self._end_if_over()
        if queue:
            self._taken += 1
            value = self._unpacked(rank, queue.popleft())
            if self._error is None:
                raise_if_owed(self.pool)
            return value
        self.open.discard(rank)
        if not self._run.is_over:
            if self._ended_well(rank):  # the others go on
                raise_if_owed(self.pool)
                raise StopIteration(None)
            self._await()
        returned = self.end().get(rank)
        raise_if_owed(self.pool)
        raise StopIteration(returned)

    def _await(self, until: Callable[[], bool] = lambda: False, *, reads: bool = True) -> None:
        """Wait until it is over, or `until` says so; `reads`: this thread is the one that takes values."""
        was_stopped = False
        while not (until() or self._run.is_over):
            try:
                if self._listens.acquire(timeout=_FOLLOWS):
                    with self._ends:
                        if reads and not self._is_over:  # else others may have its ranks
                            self._owned()
                    self.pool.runs.await_any((self._run,), self._hear, until)
            except RunLeft:
                raise
            except KeyboardInterrupt:
                self.stop()
                self.pool.driver.owe_interrupt()
                if was_stopped:  # the other thread may be within a generator of the user's
                    raise
                was_stopped = True
            finally:
                # It may be taken also where an interrupt came as it was.
                with contextlib.suppress(RuntimeError):  # another thread has it
                    self._listens.release()

    @property
    def in_store(self) -> set[str]:
        """Digests of the values in the store that nobody has taken yet."""
        waiting = [each for rank in tuple(self.open) for each in tuple(self.waiting[rank])]
        coming = tuple(self._coming)
        return {each.digest for each in (*waiting, *coming) if each.data is None}

    def stop(self) -> None:
        """Interrupt it on all its ranks; from any thread."""
        self.pool.interrupt(self._run.number)

    def settle(self, seconds: float) -> bool:
        """Whether its ranks are free within so many seconds, if no further values are taken; or somebody takes them."""
        before = self._taken
        if not self._is_over:
            until, looks = time.monotonic() + seconds, itertools.count()
            # It is looked several times, also where this process stood still meanwhile.
            self._await(lambda: next(looks) >= _LOOKS and time.monotonic() > until, reads=False)
            self._end_if_over()
        return self._is_over or self._taken > before

    def _end_if_over(self) -> None:
        """Set its ranks free once all generators are at their end, even if values are still to be taken."""
        if self._run.is_over and not self._is_over:
            try:
                self.end()
            except Exception:  # noqa: BLE001 - the one that reads to the end gets it
                return
            except KeyboardInterrupt:  # that one, or who closes it
                if self._error is None:  # it came before
                    self.pool.driver.owe_interrupt()
                elif not (self._run.state.is_interrupted or self._run.state.failed):
                    self._run.state.took_interrupt = True  # as its values came

    def _ended_well(self, rank: int) -> bool:
        """Whether a rank came to its generator's end; if it did not, the others are being stopped."""
        end = self._run.state.done.get(rank)
        return end is not None and end.failure is None and end.rejected is None

    def _is_there(self, rank: int) -> bool:
        return bool(self.waiting[rank]) or rank not in self._run.state.running

    @property
    def _is_over(self) -> bool:
        return self._ended is not None or self._error is not None

    def _hear(self, _: ActiveRun, event: Event | None) -> None:
        self._watch(event)

    def _take(self, event: Yielded) -> None:
        self.waiting[event.rank].append(event.value)

    def _unpacked(self, rank: int, packed: Packed) -> Any:
        store = self.pool.context.stores.of((rank,))
        self._coming.append(packed)
        try:
            with self.pool.closing.reaching():
                value = unpack(packed, store, only_values=self.pool.spec.only_values)
        finally:
            self._coming.remove(packed)
        if packed.data is None:
            store.drop({packed.digest})
        return value

    def stow(self, what: Bundle, rank: int) -> Packed:
        """Put something where a rank finds it; raises `PoolError` where its machine has ended."""
        return _stowed(self.pool, what, rank)

    def end(self) -> Mapping[int, Any]:
        """The return values of the generators, once all are over; raises the run's error."""
        with self._ends, self.pool.lines.interrupts(anew=False):
            if self._error is not None:
                raise self._error
            if self._ended is None:
                try:
                    self._ended = self._end()
                except BaseException as error:
                    self._error = error
                    raise
            return self._ended

    def resume(self, rank: int, **what: Any) -> None:
        """Have a rank's generator go on."""
        if rank in self._run.state.running:
            self.pool.lines.send(Resume(self._run.number, (rank,), **what))

    def abandon(self, rank: int) -> None:
        """An interrupt came, wherever this thread was: nothing of it goes on."""
        if not (self._run.is_over or self._run.state.is_interrupted):
            self.stop()
        with contextlib.suppress(Exception, KeyboardInterrupt):  # the interrupt is raised
            self.close(rank)

    def close(self, rank: int) -> None:
        """Nobody wants more of a rank; once that is so of all, the run ends."""
        if rank in self.open:
            self.open.discard(rank)
            with contextlib.suppress(SkyError):
                self.resume(rank, count=0, closed=True)
        if self.open:
            return
        if not self._is_over:
            self.end()
        else:
            self.untold()

    def untold(self) -> None:
        """Its error is dropped: if that is an interrupt that nobody was told of yet, the user's code gets it."""
        if self._run.state.took_interrupt and self._run.state.is_in_front:
            self.pool.driver.owe_interrupt()

    def told(self) -> None:
        """Its error is raised, or will be: nobody else is to tell of an interrupt that came so far."""
        self._run.state.took_interrupt = False
        self.pool.driver.interrupts_told()


def _heeds(function: Callable[..., Any]) -> bool:
    if inspect.isasyncgenfunction(function):
        return True
    # That of the generator that there is on the rank: a decorator's own, where it is one.
    return heeds_what_is_sent(getattr(function, "func", function).__code__)


class RankStream(Generator[Any, Any, Any]):
    """The values of a rank's generator, as they come; `send`, `throw` and `close` reach it there."""

    def __init__(self, run: StreamRun, rank: int) -> None:
        self._run = run
        self._rank = rank
        self._taken = 0
        self._begun = False
        self._closed = False

    def send(self, value: Any, /) -> Any:
        """Go on with a value for its `yield`; the next value. TypeError where it heeds none."""
        if value is not None and not self._run.heeds:
            raise TypeError("this generator ignores the values sent to it")
        if value is not None and not self._begun:
            raise TypeError("can't send non-None value to a just-started generator")
        sent = None
        if value is not None:
            sent = self._run.stow(pack("the value that is sent", value), self._rank)
        return self._next(sent=sent)

    def throw(self, kind: Any, value: Any = None, trace: TracebackType | None = None, /) -> Any:
        """Raise an exception at its `yield`; the next value."""
        error = (
            kind if isinstance(kind, BaseException) else kind(*([] if value is None else [value]))
        )
        thrown = pack("the exception that is thrown", error.with_traceback(trace))
        return self._next(thrown=self._run.stow(thrown, self._rank))

    def _next(self, **what: Packed | None) -> Any:
        if self._closed:
            raise StopIteration
        if self._begun and (self._run.heeds or what.get("thrown")):
            self._run.resume(self._rank, count=1, **what)
        elif self._taken >= AHEAD // 2:
            self._run.resume(self._rank, count=self._taken)
            self._taken = 0
        self._begun = True
        try:
            value = self._run.next_of(self._rank)
        except BaseException as error:
            self._closed = True
            if not isinstance(error, StopIteration):
                self._run.told()
            stops = isinstance(error, KeyboardInterrupt | SystemExit)
            if stops and not isinstance(error, RunLeft):
                self._run.abandon(self._rank)
            raise
        self._taken += 1
        return value

    def stop(self) -> None:
        """Interrupt it, from any thread, also while another one waits for its next value."""
        self._run.stop()

    def close(self) -> None:
        """End it: the generator on the rank is closed, and its rank is free."""
        try:
            self._close()
        except BaseException:
            self._run.told()
            raise
        raise_if_owed(self._run.pool)

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self._run.close(self._rank)
        except (KeyboardInterrupt, SystemExit):
            self._run.abandon(self._rank)
            raise

    def _drop(self) -> None:
        try:
            self._close()
        except Exception:  # noqa: BLE001 - nobody reads it
            return
        except KeyboardInterrupt:
            self._run.untold()

    def __del__(self) -> None:
        if self._closed:
            return
        try:
            at_drop(self._run.pool, self._drop)
        except (KeyboardInterrupt, SystemExit) as error:  # just as that began
            at_drop(self._run.pool, self._drop, signal_of(error))
