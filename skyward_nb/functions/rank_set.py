"""Where functions run: `RankSet`, the ranks of a whole pool or a part of them, and `WholePool`, which knows its parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Self, TypeVar, cast, overload

from skyward_nb.functions.executors import RankExecutor
from skyward_nb.functions.function import PendingFunction, streams
from skyward_nb.functions.function_marks import marks_of
from skyward_nb.functions.futures import PoolFuture, Workers, joined
from skyward_nb.functions.mapping import run_map
from skyward_nb.functions.packed_calls import pack_call
from skyward_nb.functions.pool_operand import PoolOperand
from skyward_nb.functions.rank_slots import OF_TASK, StopsBy, Wanted, always
from skyward_nb.functions.rank_streams import RankStream
from skyward_nb.functions.runner import Runner
from skyward_nb.plugins.choices import PluginChoice
from skyward_nb.pool.outcome import ActiveRun
from skyward_nb.reports.tracebacks import shortened
from skyward_nb.runtime.function_calls import raw_of
from skyward_nb.words.spec import PoolSpec

R = TypeVar("R")


@dataclass(frozen=True)
class CallService:
    """What a pool's calls need: its runner, `ready` for some functions, threads, and the kernel's thread to draw."""

    ready: Callable[..., Runner]
    workers: Workers
    draw_later: Callable[[], None]


class RankSet(PoolOperand, ABC):
    """Ranks that functions run on: those of a pool, or some of them."""

    def __init__(self, calls: CallService) -> None:
        self._calls = calls

    @property
    @abstractmethod
    def compute(self) -> WholePool:
        """The pool that has these ranks."""

    @property
    @abstractmethod
    def ranks(self) -> tuple[int, ...]:
        """These ranks."""

    def run(self, call: PendingFunction[R]) -> R:
        """`call >> pool`: run a call on one rank of the least busy node; returns its value."""
        if call.function.is_stream:
            (stream,) = self._streams(call)()
            return cast("R", stream)
        runner = self._calls.ready(call.function)
        return runner.run(pack_call(call), self.ranks, all_of=False).head

    def broadcast(self, call: PendingFunction[R]) -> list[R]:
        """`call @ pool`: run a call on every rank; returns their values in rank order."""
        if call.function.is_stream:
            return cast("list[R]", self._streams(call, all_of=True)())
        runner = self._calls.ready(call.function)
        return list(runner.run(pack_call(call), self.ranks, all_of=True))

    def _streams(
        self, call: PendingFunction[Any], *, all_of: bool = False
    ) -> Callable[..., list[RankStream]]:
        """What begins a generator, with the arguments as they are now, and gives the values of each rank.

        It takes `stops_by` and `is_wanted`, as a call does.
        """
        packed = pack_call(call)

        def begin(
            stops_by: StopsBy = lambda _: None, is_wanted: Wanted = always
        ) -> list[RankStream]:
            runner = self._calls.ready(call.function)
            stops_by(runner.claims.slots.look)
            return runner.stream(
                call.function, packed, self.ranks, all_of=all_of, is_wanted=is_wanted
            )

        return begin

    def submit(self, call: PendingFunction[R]) -> PoolFuture[R]:
        """`call > pool`: run a call in the background, with the arguments as they are now."""
        return self._submit(call)

    def _submit(
        self, call: PendingFunction[Any], *, all_of: bool = False, task: int = 0
    ) -> PoolFuture[Any]:
        """As `submit`; for a `task` of an event loop, which may have generators, by its number."""
        runner = self._calls.ready(call.function)
        _check_returns(call)
        job = pack_call(call)
        job.packed = runner.pool.sending.stow(job.bundle)
        future: PoolFuture[Any] = PoolFuture(self._calls.draw_later)

        def work(stops_by: StopsBy) -> Any:
            def begun(run: ActiveRun) -> None:
                stops_by(lambda: runner.pool.interrupt(run.number))

            stops_by(runner.claims.slots.look)
            OF_TASK.set(task)  # this thread does one thing after another
            found = runner.run(
                job, self.ranks, all_of=all_of, begun=begun, is_wanted=lambda: future.is_wanted
            )
            return list(found) if all_of else found.head

        future.add_done_callback(lambda _: runner.pool.sending.let_go(job.bundle))
        self._calls.workers.submit(future, work)
        return future

    def run_all(self, calls: Sequence[PendingFunction[Any]]) -> tuple[Any, ...]:
        """`(a & b) >> pool`: run calls side by side, each on one rank; returns their values."""
        values: dict[int, Any] = dict(self._each(calls))
        return tuple(values[number] for number in range(len(calls)))

    def submit_all(self, calls: Sequence[PendingFunction[Any]]) -> Future[tuple[Any, ...]]:
        """`(a & b) > pool`: the same in the background; cancelling the future cancels all calls."""
        futures: list[PoolFuture[Any]] = []
        try:
            for call in calls:
                futures.append(self.submit(call))  # noqa: PERF401 - those before one that fails end
        except BaseException:
            for each in futures:
                each.cancel()
            raise
        return joined(futures, self._calls.draw_later)

    def run_each(self, calls: Sequence[PendingFunction[R]]) -> Iterator[R]:
        """Run calls side by side; yields their values in the order in which the calls end."""
        return (value for _, value in self._each(calls))

    def _each(self, calls: Sequence[PendingFunction[Any]]) -> Iterator[tuple[int, Any]]:
        runner = self._calls.ready(*(call.function for call in calls))
        for call in calls:
            _check_returns(call)
        jobs = [pack_call(call) for call in calls]
        return runner.run_each(iter(jobs), self.ranks, f"{len(calls)} calls")

    @overload
    def map(
        self,
        function: Callable[..., PendingFunction[R]],
        *items: Iterable[Any],
        timeout: float | None = None,
    ) -> list[R]: ...
    @overload
    def map(
        self,
        function: Callable[..., Coroutine[Any, Any, R]],
        *items: Iterable[Any],
        timeout: float | None = None,
    ) -> list[R]: ...
    @overload
    def map(
        self, function: Callable[..., R], *items: Iterable[Any], timeout: float | None = None
    ) -> list[R]: ...
    @shortened
    def map(
        self, function: Callable[..., Any], *items: Iterable[Any], timeout: float | None = None
    ) -> list[Any]:
        """The values of a function for each item, in order; a progress bar counts the items.

        The function is a `sky.function` or a plain one. Several iterables, of one length, give it several
        arguments. Free ranks get items, many at once where those are quick; `timeout` is in seconds, for
        each such batch. An exception of an item is raised with a note that names the item.
        """
        return self._mapped(function, items, timeout)

    @shortened
    def _mapped(
        self,
        function: Callable[..., Any],
        items: Sequence[Iterable[Any]],
        timeout: float | None = None,
        stops_by: StopsBy = lambda _: None,
    ) -> list[Any]:
        if streams(raw_of(function)):
            raise _gives_many(getattr(function, "__qualname__", "it"))
        runner = self._calls.ready(function)
        tuples = list(zip(*items, strict=True))
        return run_map(runner, function, tuples, self.ranks, timeout, stops_by)

    def executor(self) -> RankExecutor:
        """These ranks as a `concurrent.futures.Executor`: each call runs on one of them."""
        return RankExecutor(self)


class WholePool(RankSet):
    """All ranks of a pool, and its parts: `head`, `node(2)`, `rank(3)`."""

    name: str

    @property
    @abstractmethod
    def spec(self) -> PoolSpec:
        """The spec of the pool."""

    @abstractmethod
    def _live(self) -> Runner:
        """The runner of the pool, which is up."""

    @property
    def compute(self) -> Self:
        """The pool itself."""
        return self

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks."""
        return tuple(range(self.spec.world_size))

    @property
    def head(self) -> Target:
        """Rank 0: `call >> pool.head`."""
        return self.rank(0)

    def node(self, number: int) -> Target:
        """The ranks of one node: `call >> pool.node(2)` runs on one of them, `@` on all."""
        if not 0 <= number < self.spec.nodes:
            raise IndexError(
                f"pool {self.name!r} has nodes 0-{self.spec.nodes - 1}, and no node {number}"
            )
        first = number * self.spec.slots
        return Target(
            self, self._calls, tuple(range(first, first + self.spec.slots)), f"node({number})"
        )

    def rank(self, number: int) -> Target:
        """One rank: `call >> pool.rank(3)`."""
        if number not in self.ranks:
            raise IndexError(
                f"pool {self.name!r} has ranks 0-{self.ranks[-1]}, and no rank {number}"
            )
        return Target(self, self._calls, (number,), f"rank({number})")

    def install(self, *packages: str) -> None:
        """Install packages on all machines while the pool is up; ranks begin anew with them, their names are lost.

        They are named as pip does: `pool.install("einops", "scipy>=1.10")`. Raises `HostNotReady`, on this machine
        `MissingDependency`, with the installer's words; the pool is as it was then.
        """
        self._live().readiness.install(packages)

    def _ready(self, *functions: Callable[..., Any]) -> Runner:
        """The runner of the pool, whose ranks are ready for the frameworks of these functions."""
        runner = self._live()
        runner.readiness.ready(*_needs_of(functions))
        return runner

    def _is_ready(self, *functions: Callable[..., Any]) -> bool:
        """Whether the ranks are so already."""
        return self._live().readiness.is_ready(*_needs_of(functions))


class Target(RankSet):
    """Some ranks of a pool; takes calls by `>>`, `@` and `>`."""

    def __init__(
        self, compute: WholePool, calls: CallService, ranks: tuple[int, ...], name: str
    ) -> None:
        super().__init__(calls)
        self._compute = compute
        self._ranks = ranks
        self._name = name

    @property
    def compute(self) -> WholePool:
        """The pool that has these ranks."""
        return self._compute

    @property
    def ranks(self) -> tuple[int, ...]:
        """These ranks."""
        return self._ranks

    def __repr__(self) -> str:
        return f"<{self._compute.name}.{self._name}>"


def _needs_of(
    functions: Sequence[Callable[..., Any]],
) -> tuple[tuple[PluginChoice, ...], tuple[Callable[..., Any], ...]]:
    raw = tuple(map(raw_of, functions))
    return tuple(use for each in raw for use in marks_of(each).uses), raw


def _check_returns(call: PendingFunction[Any]) -> None:
    """Raise TypeError for a generator function where a call is to have one value."""
    if call.function.is_stream:
        raise _gives_many(call.function.name)


def _gives_many(name: str) -> TypeError:
    return TypeError(
        f"{name} is a generator: its values come one by one to `for x in {name}(...) >> pool` "
        "(`async for` in async code), and not to a future, &, gather, map, or @ that is awaited"
    )
