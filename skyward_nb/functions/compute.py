"""`sky.Compute`: a pool for functions, from its start, or first use, until it is closed."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self

from IPython.core.getipython import get_ipython

from skyward_nb.functions.alternatives import check_selection, dry_run_lines, first_that_starts
from skyward_nb.functions.call_display import CallDisplay
from skyward_nb.functions.executors import joblib_on
from skyward_nb.functions.futures import Workers
from skyward_nb.functions.lacked_modules import lacked_by_functions
from skyward_nb.functions.notebook_names import namespace_of
from skyward_nb.functions.pool_operand import PoolOperand
from skyward_nb.functions.rank_set import CallService, WholePool
from skyward_nb.functions.runner import Runner
from skyward_nb.functions.told_to_end import closed, open_for
from skyward_nb.options.arguments import (
    AcceleratorLike,
    Allocation,
    MeshLike,
    Spec,
    TimeLike,
    specs_for,
)
from skyward_nb.options.cell_options import CellOptions
from skyward_nb.options.plugin_options import has_jobs
from skyward_nb.options.provider_arguments import (
    AWS,
    SSH,
    Kubernetes,
    Local,
    Ray,
    SkyPilot,
    Slurm,
)
from skyward_nb.plugins.choices import PluginChoice
from skyward_nb.pool.pool import Pool
from skyward_nb.providers.provider_table import PROVIDERS
from skyward_nb.reports.cost_approval import make_sure, say_kept
from skyward_nb.reports.scripts import Script
from skyward_nb.reports.source_lines import source_finder
from skyward_nb.reports.tracebacks import shortened
from skyward_nb.show.display import RunDisplay
from skyward_nb.system.awaiting import to_its_end
from skyward_nb.words.errors import OptionError, PoolError
from skyward_nb.words.image import Image
from skyward_nb.words.pool_options import Options, Worker
from skyward_nb.words.spec import PoolSpec
from skyward_nb.words.volume import Volume

if TYPE_CHECKING:
    from skyward_nb.functions.asynchronous import AsyncCompute

_numbers = itertools.count(1)
_naming = threading.Lock()
_here: weakref.WeakSet[Compute] = weakref.WeakSet()
"""The pools of this process that were started."""


class Compute(WholePool):
    """A pool of ranks for functions; `with` starts it, and ends it however the block is left.

    Of several `sky.Spec(...)` the cheapest that can be had is used, or with `selection="first"` the first.
    Raises `OptionError` for arguments that contradict one another, before anything starts.
    """

    @shortened
    def __init__(
        self,
        *specs: Spec,
        selection: Literal["cheapest", "first"] | None = None,
        provider: Local | SSH | Slurm | Kubernetes | Ray | SkyPilot | AWS | str | None = None,
        nodes: int | None = None,
        accelerator: AcceleratorLike | None = None,
        image: Image | None = None,
        volumes: Sequence[Volume] | None = None,
        plugins: Iterable[PluginChoice | Callable[[], PluginChoice]] = (),
        options: Options | None = None,
        ranks_per_node: int | Literal["auto"] | None = None,
        worker: Worker | None = None,
        mesh: MeshLike | None = None,
        python: str | None = None,
        pip: str | Sequence[str] | None = None,
        apt: str | Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        memory_limit: int | str | None = None,
        cpu_limit: int | str | None = None,
        cpus: float | str | None = None,
        memory: float | str | None = None,
        spot: Literal["auto", "yes", "no", "cheapest"] | bool | None = None,
        allocation: Allocation | None = None,
        on_preempt: Literal["tell", "replace"] | None = None,
        checkpoint: str | Path | None = None,
        resume: bool | None = None,
        ttl: TimeLike | None = None,
        idle: TimeLike | None = None,
        grace: TimeLike | None = None,
        max_cost: float | None = None,
        max_hourly_cost: float | None = None,
        confirm_above: float | None = None,
        yes: bool | None = None,
        name: str | None = None,
        simulate: bool | Literal["cuda"] | None = None,
        trust: Literal["values"] | None = None,
        trust_local_users: bool | None = None,
        cache: str | None = None,
        ca: str | Path | None = None,
        quiet: bool = False,
    ) -> None:
        plugins = tuple(plugins) if isinstance(plugins, Iterable) else plugins  # pyright: ignore[reportUnnecessaryIsInstance]
        check_selection(selection, specs)
        self._selection: Literal["cheapest", "first"] = selection or "cheapest"
        self._specs = specs_for(
            f"compute-{next(_numbers)}",
            plugins,
            specs,
            provider=provider,
            nodes=nodes,
            accelerator=accelerator,
            image=image,
            volumes=volumes,
            options=options,
            ranks_per_node=ranks_per_node,
            worker=worker,
            mesh=mesh,
            python=python,
            pip=pip,
            apt=apt,
            env=env,
            memory_limit=memory_limit,
            cpu_limit=cpu_limit,
            cpus=cpus,
            memory=memory,
            spot=spot,
            allocation=allocation,
            on_preempt=on_preempt,
            checkpoint=None if checkpoint is None else str(checkpoint),
            resume=resume,
            ttl=ttl,
            idle=idle,
            grace=grace,
            max_cost=max_cost,
            max_hourly_cost=max_hourly_cost,
            confirm_above=confirm_above,
            yes=yes,
            simulate=simulate,
            trust=trust,
            trust_local_users=trust_local_users,
            cache=cache,
            ca=ca,
            name=name,
        )
        self._spec = self._specs[0]
        self.name: str = self._spec.name
        self._has_jobs = has_jobs(plugins)
        self._within = ExitStack()
        self._stage = CallDisplay(quiet=quiet)
        self._runner: Runner | None = None
        self._coming: Pool | None = None
        """The pool that is being started."""
        self._closed = False
        self._pid = os.getpid()
        self._starting = threading.RLock()
        self._workers = Workers(self._spec.world_size, f"skyward-{self.name}")
        super().__init__(CallService(self._ready, self._workers, self._stage.draw_later))

    @property
    def spec(self) -> PoolSpec:
        """The spec of the pool; functions add the frameworks that they use to it."""
        return self._spec if self._runner is None else self._runner.pool.spec

    # ── life ────────────────────────────────────────────────────────────────────────────

    @shortened
    def start(self) -> Self:
        """Start the ranks, if they are not up; a `StartError` leaves nothing behind.

        Jobs of joblib, for `sky.plugins.joblib()`, run on them only inside a `with` block.
        """
        self._live()
        return self

    def close(self) -> None:
        """End the ranks and everything that runs on them; may be called again."""
        if os.getpid() != self._pid:
            return
        with self._starting:
            self._closed = True
            runner = self._runner
        self._workers.cancel()
        if runner is not None:
            runner.pool.close()
            say_kept(runner.pool)
        self._runner = None  # only now: if an interrupt comes above, the pool can be closed again
        self._workers.close()
        self._stage.close()
        atexit.unregister(self._close_at_exit)
        closed(self)

    def _close_at_exit(self) -> None:
        with suppress(SystemExit):  # it ends already
            self.close()

    def __enter__(self) -> Self:
        try:
            self.start()
            self._take_jobs()
        except BaseException:
            # One that was lost can start anew, but for one whose money is spent.
            pool = None if self._runner is None else self._runner.pool
            if pool is not None and not (pool.closed and pool.context.over is None):
                self.close()
            raise
        return self

    def _take_jobs(self) -> None:
        """Until the block ends, run the joblib jobs of this thread on the ranks, if a plugin says so."""
        if self._has_jobs:
            self._within.enter_context(joblib_on(self))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._within.close()
        self.close()

    async def __aenter__(self) -> AsyncCompute:
        from skyward_nb.functions.asynchronous import AsyncCompute

        open_for(self)  # here: the pool is started in another thread
        try:
            await asyncio.to_thread(self.start)
        except asyncio.CancelledError:
            await self._close_in_a_thread()  # else it would go on starting, and be there
            raise
        except BaseException:
            closed(self)
            raise
        try:
            self._take_jobs()  # here: joblib keeps its backend by thread
        except BaseException:
            await self._close_in_a_thread()
            raise
        return AsyncCompute(self)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._within.close()
        await self._close_in_a_thread()

    async def _close_in_a_thread(self) -> None:
        """Close it, whoever cancels that; a start that goes on is waited for."""
        from skyward_nb.functions.asynchronous import WaitingThread

        try:
            # The loop's own threads may all wait for what only this ends.
            with WaitingThread() as thread:
                await to_its_end(thread.do(self.close))
        finally:
            closed(self)

    def run_script(self, script: Script, options: CellOptions) -> object:
        """Run a script on the ranks, as `sky.run` asks for it."""
        if options.detach:
            raise OptionError(
                "detach",
                "detach=True is for the pool of a notebook's cells: here, run it in a thread, with "
                "concurrent.futures.ThreadPoolExecutor",
            )
        self._live().run_script(script, options)
        return None

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
            if runner is not None and runner.pool.context.over is not None:
                raise runner.pool.context.closed_error()
            if self._runner is None or self._runner.pool.closed:
                return self._start()
            return self._runner

    def _start(self) -> Runner:
        with _naming:
            others = [each for each in _here if each is not self and not each._closed]
            _here.add(self)
        if any(each.name == self.name for each in others):
            _here.discard(self)
            raise PoolError(
                self.name,
                f"this process has a pool {self.name!r} already: close it first, or give this one another name=",
            )
        shell = get_ipython()
        namespace_of(shell)
        display = self._stage.display(f"Starting {self.spec}")
        open_for(self)
        try:
            pool = first_that_starts(self._specs, self._selection, display, self._bring_up)
            self._spec = pool.spec
            self._workers.most = pool.spec.world_size
            display.end("finished", f"Pool {self.name} is up: {pool.spec}")
            atexit.register(self._close_at_exit)
            self._stage.open(pool)
            self._runner = runner = Runner(pool, self._stage)
            self._coming = None
        except BaseException as error:
            if self._coming is not None and self._coming.generation:
                self._coming.close()  # an interrupt may come once it is up
            _here.discard(self)
            display.error_follows = isinstance(error, Exception)
            display.fail(error, silent="Interrupted; nothing was started")
            closed(self)
            raise
        return runner

    def _bring_up(self, spec: PoolSpec, display: RunDisplay) -> Pool:
        shell = get_ipython()
        if lacks := lacked_by_functions(namespace_of(shell), spec):
            display.note(lacks)
        program = "" if shell is not None else Path(sys.argv[0]).name or "Python"
        pool = Pool(spec, PROVIDERS[spec.provider](), source_finder(shell), program=program)
        self._coming = pool
        pool.context.in_python = True
        display.change(title=f"Starting {spec}", awaited=spec.world_size)
        make_sure(spec, display)
        pool.start(display.watch)
        return pool

    def dry_run(self) -> None:
        """Print what would be started, in the order in which it is tried, and for which price; nothing is started."""
        for line in dry_run_lines(self._specs, self._selection):
            print(line)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return PoolElsewhere, (self.name,)

    def __repr__(self) -> str:
        how = "closed" if self._closed else "up" if self._runner is not None else "not started"
        return f"<sky.Compute {self.name}: {self.spec}, {how}>"


def started(name: str) -> Compute | None:
    """The pool of this name that this process has started and not closed."""
    with _naming:
        return next((each for each in _here if each.name == name and not each._closed), None)


class PoolElsewhere(PoolOperand):
    """On a rank, stands for a pool of the notebook or script; calls cannot be sent to it from there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):  # Python looks it up, as unpickling does
            raise AttributeError(name)
        raise PoolError(
            self._name,
            f"pool {self._name!r} was called from one of its own ranks: calls are sent from the notebook or "
            "script that made it. Here, call the function itself: f(x).local()",
        )
