"""`sky.Compute`: a pool for functions, alive from its first use until it is closed."""

from __future__ import annotations

import atexit
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from IPython.core.getipython import get_ipython

from skyward_nb.api.function import PendingFunction
from skyward_nb.api.namespaces import namespace_of
from skyward_nb.api.runner import Runner
from skyward_nb.api.sources import source_finder
from skyward_nb.api.specs import spec_of
from skyward_nb.api.stage import Stage
from skyward_nb.pool.pool import Pool
from skyward_nb.providers.base import Provider
from skyward_nb.providers.local import LocalProvider
from skyward_nb.words.errors import PoolError
from skyward_nb.words.spec import PoolSpec

R = TypeVar("R")
T = TypeVar("T")
_PROVIDERS: dict[str, type[Provider]] = {"local": LocalProvider}
_numbers = itertools.count(1)
_here: weakref.WeakSet[Compute] = weakref.WeakSet()


class Compute:
    """A pool of ranks for functions; `with` starts it, and leaving that by any way ends it.

    Raises `OptionError` for arguments that contradict one another, before anything is started.
    """

    __sky_pool__ = True

    def __init__(
        self, *, name: str | None = None, nodes: int = 1, quiet: bool = False, **options: Any
    ) -> None:
        self.name = name or f"compute-{next(_numbers)}"
        self.spec: PoolSpec = spec_of(PoolSpec(), {"pool": self.name, "nodes": nodes, **options})
        self._stage = Stage(quiet=quiet)
        self._runner: Runner | None = None
        self._closed = False
        self._pid = os.getpid()
        self._starting = threading.RLock()

    # ── life ────────────────────────────────────────────────────────────────────────────

    def start(self) -> Self:
        """Bring the ranks up, if they are not; raises `StartError` with nothing left behind."""
        self._live()
        return self

    def close(self) -> None:
        """End the ranks, and what runs on them; again, without harm. Nothing is left running."""
        if os.getpid() != self._pid:
            return
        with self._starting:
            self._closed = True
            runner, self._runner = self._runner, None
        if runner is not None:
            runner.pool.close()
            self._stage.close()
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _live(self) -> Runner:
        if os.getpid() != self._pid:
            raise PoolError(
                self.name,
                f"pool {self.name!r} belongs to process {self._pid}, which forked this one: "
                "make a pool of its own here, or use it there",
            )
        runner = self._runner
        if runner is not None and not runner.pool.closed:
            return runner
        with self._starting:
            if self._closed:
                raise PoolError(
                    self.name,
                    f"pool {self.name!r} is closed: use it inside its `with` block, or make another",
                )
            if self._runner is None or self._runner.pool.closed:
                self._runner = self._start()
            return self._runner

    def _start(self) -> Runner:
        if any(
            each.name == self.name and each._runner is not None
            for each in _here
            if each is not self
        ):
            raise PoolError(
                self.name,
                f"this process has a pool {self.name!r} already: close it first, or give this one another name=",
            )
        shell = get_ipython()
        namespace_of(shell)
        provider = _PROVIDERS[self.spec.provider]()
        pool = Pool(self.spec, provider, source_finder(shell))
        display = self._stage.display(f"Starting {self.spec}")
        display.change(awaited=self.spec.world_size)
        try:
            pool.start(display.watch)
        except BaseException as error:
            display.end(
                "failed", str(error).partition("\n")[0] or "Interrupted; nothing was started"
            )
            raise
        display.end("finished", f"Pool {self.name} is up: {self.spec}")
        atexit.register(self.close)
        _here.add(self)
        self._stage.open(pool)
        return Runner(pool, self._stage, provider.shares_files)

    # ── running ─────────────────────────────────────────────────────────────────────────

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks."""
        return tuple(range(self.spec.world_size))

    def run(self, call: PendingFunction[R]) -> R:
        """What `call >> pool` does: run it on one rank of the least busy node; its value."""
        runner = self._live()
        return runner.run(runner.job(call), self.ranks, all_of=False).head

    def broadcast(self, call: PendingFunction[R]) -> list[R]:
        """What `call @ pool` does: run it on every rank; their values in rank order."""
        runner = self._live()
        return list(runner.run(runner.job(call), self.ranks, all_of=True))

    def run_all(self, calls: Sequence[PendingFunction[Any]]) -> tuple[Any, ...]:
        """What `(a & b) >> pool` does: run them side by side, each on one rank; their values."""
        values: dict[int, Any] = dict(self._each(calls))
        return tuple(values[number] for number in range(len(calls)))

    def run_each(self, calls: Sequence[PendingFunction[R]]) -> Iterator[R]:
        """The values of calls that run side by side, in the order in which they end."""
        return (value for _, value in self._each(calls))

    def _each(self, calls: Sequence[PendingFunction[Any]]) -> Iterator[tuple[int, Any]]:
        runner = self._live()
        jobs = [runner.job(call) for call in calls]
        return runner.run_each(iter(jobs), self.ranks, f"{len(calls)} calls")

    def map(
        self, function: Callable[..., R], *items: Iterable[Any], timeout: float | None = None
    ) -> list[R]:
        """The values of a function for each item, in order; many items a batch, on all ranks."""
        runner = self._live()
        return runner.map(function, list(zip(*items, strict=True)), self.ranks, timeout)
