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
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self

from IPython.core.getipython import get_ipython

from skyward_nb.functions.call_display import CallDisplay
from skyward_nb.functions.executors import joblib_on
from skyward_nb.functions.function_marks import marks_of
from skyward_nb.functions.futures import Workers
from skyward_nb.functions.notebook_names import namespace_of
from skyward_nb.functions.rank_set import CallService, RankSet, Target
from skyward_nb.functions.runner import Runner
from skyward_nb.options.arguments import (
    AWS,
    SSH,
    AcceleratorLike,
    Local,
    MeshLike,
    TimeLike,
    spec_for,
)
from skyward_nb.options.plugin_options import has_jobs
from skyward_nb.plugins.choices import PluginChoice
from skyward_nb.pool.pool import Pool
from skyward_nb.providers.provider_table import PROVIDERS
from skyward_nb.reports.cost_approval import make_sure
from skyward_nb.reports.source_lines import source_finder
from skyward_nb.reports.tracebacks import shortened
from skyward_nb.runtime.function_calls import raw_of
from skyward_nb.words.errors import PoolError
from skyward_nb.words.image import Image
from skyward_nb.words.pool_options import Options
from skyward_nb.words.spec import PoolSpec

if TYPE_CHECKING:
    from skyward_nb.functions.asynchronous import AsyncCompute

_numbers = itertools.count(1)
_naming = threading.Lock()
_here: weakref.WeakSet[Compute] = weakref.WeakSet()
"""The pools of this process that were started."""


class Compute(RankSet):
    """A pool of ranks for functions; `with` starts it, and ends it however the block is left.

    Raises `OptionError` for arguments that contradict one another, before anything starts.
    """

    @shortened
    def __init__(
        self,
        *,
        provider: Local | SSH | AWS | str | None = None,
        nodes: int | None = None,
        accelerator: AcceleratorLike | None = None,
        image: Image | None = None,
        plugins: Iterable[PluginChoice | Callable[[], PluginChoice]] = (),
        options: Options | None = None,
        ranks_per_node: int | Literal["auto"] | None = None,
        mesh: MeshLike | None = None,
        python: str | None = None,
        pip: str | Sequence[str] | None = None,
        apt: str | Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        cpus: float | str | None = None,
        memory: float | str | None = None,
        spot: Literal["auto", "yes", "no"] | bool | None = None,
        on_preempt: Literal["tell", "replace"] | None = None,
        ttl: TimeLike | None = None,
        idle: TimeLike | None = None,
        grace: TimeLike | None = None,
        max_cost: float | None = None,
        confirm_above: float | None = None,
        yes: bool | None = None,
        name: str | None = None,
        simulate: bool | None = None,
        trust: Literal["values"] | None = None,
        trust_local_users: bool | None = None,
        quiet: bool = False,
    ) -> None:
        plugins = tuple(plugins) if isinstance(plugins, Iterable) else plugins  # pyright: ignore[reportUnnecessaryIsInstance]
        self._spec = spec_for(
            f"compute-{next(_numbers)}",
            plugins,
            provider=provider,
            nodes=nodes,
            accelerator=accelerator,
            image=image,
            options=options,
            ranks_per_node=ranks_per_node,
            mesh=mesh,
            python=python,
            pip=pip,
            apt=apt,
            env=env,
            cpus=cpus,
            memory=memory,
            spot=spot,
            on_preempt=on_preempt,
            ttl=ttl,
            idle=idle,
            grace=grace,
            max_cost=max_cost,
            confirm_above=confirm_above,
            yes=yes,
            simulate=simulate,
            trust=trust,
            trust_local_users=trust_local_users,
            name=name,
        )
        self.name: str = self._spec.name
        self._has_jobs = has_jobs(plugins)
        self._within = ExitStack()
        self._stage = CallDisplay(quiet=quiet)
        self._runner: Runner | None = None
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
        """Start the ranks, if they are not up; a `StartError` leaves nothing behind."""
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
        self._runner = None  # only now: if an interrupt comes above, the pool can be closed again
        self._workers.close()
        self._stage.close()
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        self.start()
        if self._has_jobs:
            try:
                self._within.enter_context(joblib_on(self))
            except BaseException:
                self.close()
                raise
        return self

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

        await asyncio.to_thread(self.start)
        return AsyncCompute(self)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)

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
                self._runner = self._start()
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
        provider = PROVIDERS[self._spec.provider]()
        program = "" if shell is not None else Path(sys.argv[0]).name or "Python"
        pool = Pool(self._spec, provider, source_finder(shell), program=program)
        pool.context.in_python = True
        display = self._stage.display(f"Starting {self.spec}")
        display.change(awaited=self.spec.world_size)
        try:
            make_sure(self._spec, display)
            pool.start(display.watch)
        except BaseException as error:
            _here.discard(self)
            display.end(
                "failed", str(error).partition("\n")[0] or "Interrupted; nothing was started"
            )
            raise
        display.end("finished", f"Pool {self.name} is up: {self.spec}")
        atexit.register(self.close)
        self._stage.open(pool)
        return Runner(pool, self._stage)

    # ── where ───────────────────────────────────────────────────────────────────────────

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

    # ── running ─────────────────────────────────────────────────────────────────────────

    @property
    def compute(self) -> Compute:
        """The pool itself."""
        return self

    def _ready(self, *functions: Callable[..., Any]) -> Runner:
        """The runner of the pool, whose ranks are ready for the frameworks of these functions."""
        runner = self._live()
        raw = tuple(map(raw_of, functions))
        runner.ready(tuple(use for each in raw for use in marks_of(each).uses), raw)
        return runner

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return PoolElsewhere, (self.name,)

    def __repr__(self) -> str:
        how = "closed" if self._closed else "up" if self._runner is not None else "not started"
        return f"<sky.Compute {self.name}: {self.spec}, {how}>"


class PoolElsewhere:
    """On a rank, stands for a pool of the notebook or script; calls cannot be sent to it from there."""

    __sky_pool__ = True

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):  # Python looks it up, as unpickling does
            raise AttributeError(name)
        raise PoolError(
            self._name,
            f"pool {self._name!r} is used on one of its own ranks: calls are sent from the notebook or "
            "script that made it. Here, call the function itself: f(x).local()",
        )
