"""The pools of a notebook's cells, for functions: `sky.get_pool("default")`."""

from __future__ import annotations

import threading

from skyward_nb.functions.get_pool import CellPool
from skyward_nb.notebook.named_pools import bring_up
from skyward_nb.notebook.session import Session
from skyward_nb.options.cell_options import CellOptions
from skyward_nb.options.option_line import ParsedOptions
from skyward_nb.pool.pool import Pool
from skyward_nb.reports.scripts import Script
from skyward_nb.show.pool_displays import PoolDisplays
from skyward_nb.words.errors import PoolError
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.spec import PoolSpec


class FunctionPools:
    """The pools of a session's cells, for functions."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[str, CellPool] = {}

    def get(self, name: str) -> CellPool:
        """The pool of this name: always the same object."""
        if name not in self._known:
            self._known[name] = CellPool(name, self)
        return self._known[name]

    def spec_of(self, name: str) -> PoolSpec:
        """The spec of the pool of this name, or which it would have; raises `OptionError`."""
        pool = self._there(name)
        return pool.spec if pool is not None else self._session.finder.resolve(_named(name)).spec

    def run_script(self, name: str, script: Script, options: CellOptions) -> object:
        """Run a script on the pool of this name; the handle of one with `detach`. Raises what a cell's run raises."""
        if threading.current_thread() is not threading.main_thread():
            raise PoolError(
                name, "sky.run on the pool of cells is for the main thread: detach=True"
            )
        asked = ParsedOptions(pool=PoolOptions(pool=name), cell=options)
        return self._session.run_script(asked, script)

    def bring_up(self, name: str) -> tuple[Pool, PoolDisplays]:
        """The pool of this name, started if it is not up; raises what a cell's start raises."""
        pool = self._there(name) or bring_up(self._session, _named(name))
        return pool, self._session.pools.displays(pool)

    def _there(self, name: str) -> Pool | None:
        """The pool of this name, if it is up; raises `PoolError` in a thread that may not start it.

        Only the kernel's main thread looks for losses, starts pools and draws.
        """
        pools = self._session.pools
        if threading.current_thread() is threading.main_thread():
            return pools.live(name)
        pool = pools.get(name)
        if pool is None or pool.closed:
            which = "" if name == "default" else f" pool={name}"
            raise PoolError(
                name,
                f"pool {name!r} is not up, and a thread cannot start it: run `%sky up{which}` first",
            )
        return pool


def _named(name: str) -> ParsedOptions:
    return ParsedOptions(pool=PoolOptions(pool=name))
