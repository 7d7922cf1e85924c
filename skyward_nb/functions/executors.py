"""Ranks as a `concurrent.futures.Executor`, and as a backend of joblib: what others hand to workers runs on them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError, Executor, Future
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from skyward_nb.functions.function import Function, PendingFunction
from skyward_nb.words.errors import MissingDependency

if TYPE_CHECKING:
    from skyward_nb.functions.rank_set import RankSet

P = ParamSpec("P")
R = TypeVar("R")
BACKEND = "skyward"
"""The name of the backend for joblib."""


class RankExecutor(Executor):
    """Runs each call on one of some ranks; made by `pool.executor()`.

    Dask, asyncio and others that take an executor run their tasks on ranks by it. The pool stays when it
    is shut down. Source: `concurrent.futures.Executor`.
    """

    def __init__(self, ranks: RankSet) -> None:
        self._ranks = ranks
        self._max_workers = len(ranks.ranks)  # Dask reads it
        self._futures: set[Future[Any]] = set()
        self._is_shut = False

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run `fn(*args, **kwargs)` on one rank; raises RuntimeError after `shutdown`, `PayloadError` at once."""
        if self._is_shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = self._ranks.submit(PendingFunction(_function(fn), args, kwargs))
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; with `cancel_futures` stop those that go on. The pool stays."""
        self._is_shut = True
        futures = list(self._futures)
        for future in futures if cancel_futures else ():
            future.cancel()
        try:
            for future in futures if wait else ():
                with contextlib.suppress(CancelledError):
                    future.exception()
        except KeyboardInterrupt:
            for future in futures:
                future.cancel()
            raise


def _function(fn: Callable[..., R]) -> Function[..., R]:
    return fn if isinstance(fn, Function) else Function(fn)


@contextlib.contextmanager
def joblib_on(ranks: RankSet) -> Generator[None]:
    """Meanwhile, what joblib runs in this thread runs on ranks: `Parallel`, and so scikit-learn's `n_jobs=`.

    Raises `MissingDependency` without joblib.
    """
    try:
        import joblib
    except ImportError:
        raise MissingDependency("joblib", "sky.plugins.joblib()", "pip install joblib") from None
    register()
    with joblib.parallel_config(backend=BACKEND, ranks=ranks):
        yield


def register() -> None:
    """Have `joblib.parallel_backend("skyward")` mean ranks: `ranks=`, or those of the notebook's pool."""
    import joblib

    joblib.register_parallel_backend(BACKEND, _backend())


@functools.cache
def _backend() -> type:
    """The class of the backend: joblib is imported only where it is used."""
    # Of joblib, nothing is typed.
    from joblib import parallel

    base: Any = type("Batching", (parallel.AutoBatchingMixin, parallel.ParallelBackendBase), {})

    class RankBackend(base):
        """joblib's jobs on ranks, many in a call where they are quick."""

        supports_retrieve_callback = True

        def __init__(self, ranks: RankSet | None = None, **kwargs: Any) -> None:
            from skyward_nb.functions.get_pool import get_pool

            super().__init__(**kwargs)
            self._ranks = get_pool() if ranks is None else ranks
            self._executor = RankExecutor(self._ranks)

        def effective_n_jobs(self, n_jobs: int | None) -> int:
            """The number of jobs at once: as requested, at most one for each rank."""
            most = len(self._ranks.ranks)
            if n_jobs == 0:
                raise ValueError("n_jobs == 0 in Parallel has no meaning")
            if n_jobs is None:
                return most
            return min(n_jobs, most) if n_jobs > 0 else max(1, most + 1 + n_jobs)

        def submit(self, func: Callable[[], Any], callback: Callable[..., Any]) -> Future[Any]:
            """Run a batch of jobs on a rank."""
            future = self._executor.submit(func)
            future.add_done_callback(callback)
            return future

        apply_async = submit  # its name before joblib 1.5

        def retrieve_result_callback(self, future: Future[Any]) -> Any:
            """The values of a batch; raises the error of a job."""
            return future.result()

        def abort_everything(self, ensure_ready: bool = True) -> None:
            """Stop what goes on: a job has failed, or was interrupted."""
            del ensure_ready  # the next jobs may come at any time
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = RankExecutor(self._ranks)

        def __reduce__(self) -> tuple[Any, ...]:
            # Jobs carry the backend of what they start themselves: on a rank, that runs there.
            return parallel.SequentialBackend, ()

    return RankBackend
