"""`sky.get_pool`: a pool by its name, for functions: that which the cells of the notebook use, or one of this process."""

from __future__ import annotations

import threading
from typing import Any, Protocol

from IPython.core.getipython import get_ipython

from skyward_nb.functions.call_display import CallDisplay
from skyward_nb.functions.compute import Compute, PoolElsewhere, started
from skyward_nb.functions.futures import Workers
from skyward_nb.functions.rank_set import CallService, WholePool
from skyward_nb.functions.runner import Runner
from skyward_nb.options.cell_options import CellOptions
from skyward_nb.options.option_table import BY_NAME
from skyward_nb.pool.pool import Pool
from skyward_nb.reports.scripts import Script
from skyward_nb.show.pool_displays import PoolDisplays
from skyward_nb.words.errors import OptionError, PoolError
from skyward_nb.words.spec import PoolSpec


class CellPools(Protocol):
    """The pools of a notebook's cells, as functions find them."""

    def spec_of(self, name: str) -> PoolSpec:
        """The spec of the pool of this name, or which it would have; raises `OptionError`.

        In another thread than the main one, a pool that is not up raises `PoolError`.
        """
        ...

    def run_script(self, name: str, script: Script, options: CellOptions) -> object:
        """Run a script on the pool of this name; the handle of one with `detach`.

        Raises what a cell's run raises.
        """
        ...

    def bring_up(self, name: str) -> tuple[Pool, PoolDisplays]:
        """The pool of this name, started if it is not up; raises what a cell's start raises.

        In another thread than the main one, a pool that is not up raises `PoolError`.
        """
        ...


class CellPool(WholePool):
    """The pool of this name that the notebook's cells use, for functions; the first call brings it up, as a cell does."""

    def __init__(self, name: str, cells: CellPools) -> None:
        self.name: str = name
        self._cells = cells
        self._stage = CallDisplay(quiet=False)
        self._runner: Runner | None = None
        self._entering = threading.Lock()
        self._workers = Workers(1, f"skyward-{name}")
        super().__init__(CallService(self._ready, self._workers, self._stage.draw_later))

    @property
    def spec(self) -> PoolSpec:
        """The spec of the pool, or that which it would be started with."""
        return self._cells.spec_of(self.name)

    def run_script(self, script: Script, options: CellOptions) -> object:
        """Run a script as `%sky run` does; the handle of one with `detach`."""
        return self._cells.run_script(self.name, script, options)

    def _live(self) -> Runner:
        pool, displays = self._cells.bring_up(self.name)
        if pool.driver.runs_a_cell:
            pool.driver.busy()
        with self._entering:
            if self._runner is None or self._runner.pool is not pool:
                self._stage.share(displays)
                self._workers.most = pool.spec.world_size
                self._runner = Runner(pool, self._stage)
            return self._runner

    def __reduce__(self) -> tuple[Any, ...]:
        return PoolElsewhere, (self.name,)

    def __repr__(self) -> str:
        return f"<sky.get_pool({self.name!r})>"


def get_pool(name: str = "default") -> Compute | CellPool:
    """The pool of this name: one that `sky.Compute` has started here, or that of the notebook's cells.

    `train(3) @ sky.get_pool()` runs on the ranks of `%%sky_remote` cells, and no second pool is made. Raises
    `PoolError` where there is neither.
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError("name", f"sky.get_pool({name!r}): give the name of a pool as text")
    BY_NAME["pool"].value(name)  # raises for what is no name
    if (own := started(name)) is not None:
        return own
    shell = get_ipython()
    cells: Any = shell and shell.magics_manager.registry.get("SkyMagics")
    if cells is None:
        way = (
            "`%load_ext skyward_nb` first"
            if shell
            else f"`with sky.Compute(name={name!r})` makes one"
        )
        raise PoolError(name, f"there is no pool {name!r} here: {way}")
    found: CellPool = cells.function_pools.get(name)
    return found
