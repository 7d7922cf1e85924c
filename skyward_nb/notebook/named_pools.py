"""The pool that a line of `%sky` names: up here, left by another kernel, lost, or without an answer."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Generator

from skyward_nb.notebook.session import Session
from skyward_nb.options.option_line import ParsedOptions
from skyward_nb.pool.pool import Pool
from skyward_nb.reports.found_pools import FoundPool, choose, forget, forgotten, notebook_of
from skyward_nb.words.errors import PoolError, SkyError

_KNOWN_WITHIN = 5.0
"""Seconds in which a line that is cut is open again, or its pool known to be another client's now."""


def live_pool(session: Session, name: str) -> Pool:
    """The pool of this name that is up here; raises `PoolError` for none."""
    pool = session.pools.live(name)
    if pool is None:
        if (lost := session.pools.lost(name)) is not None and lost.how:
            raise PoolError(name, f"{lost.how}. {lost.advice}.")
        there = ", ".join(session.pools)
        hint = f"pools that are up: {there}" if there else "%sky up or a first cell makes one"
        raise PoolError(name, f"there is no pool {name!r}; {hint}")
    return pool


def bring_up(session: Session, asked: ParsedOptions) -> Pool:
    """The pool that a line means, started if it is not up; raises what a cell's start raises."""
    display = session.display()
    replaced = None
    try:
        meant = session.finder.find(asked, display)
        replaced = meant.replaced
        if (busy := replaced or meant.pool) and busy.spec != meant.spec:
            session.check_free(busy)
        pool = meant.pool or session.pools.start(meant.spec, display, replaced)
        if pool.spec != meant.spec:
            session.pools.become(pool, meant.spec, display)
    except SkyError as error:
        if display.drawn:
            display.error_follows = True
            display.fail(error)
        raise
    except KeyboardInterrupt:
        down = ""
        if replaced is not None and replaced.closed:
            down = f"pool {replaced.spec.name} was taken down, and "
        display.end("interrupted", f"Interrupted; {down}nothing was started")
        raise
    notes = pool.runs.told_once()
    display.end("finished", f"Pool {pool.spec.name} is up: {pool.spec}", notes=notes)
    return pool


def forgot(session: Session, name: str) -> bool:
    """Whether the pool of this name or id does not answer; it is then forgotten, and that printed."""
    if session.pools.live(name) is not None or session.pools.with_id(name) is not None:
        return False
    there = session.pools.others()
    with warnings_printed():
        if (pool := forget(name, there)) is not None:
            print(forgotten(pool))
    return pool is not None


def is_here(session: Session, name: str | None) -> str:
    """In words that the pool to attach is this notebook's and up, if no other one can be meant; else ""."""
    pools = session.pools
    named = [each for each in pools if name in (None, each, pools[each].pool_id)]
    mine = [pools[each] for each in named if pools.live(each, _KNOWN_WITHIN)]
    others = [left for left in pools.others() if name in (None, left.entry.spec.name)]
    if not mine or any(left.is_free for left in others):
        return ""
    lines: list[str] = []
    for pool in mine:
        which = "" if pool.spec.name == "default" else f" pool={pool.spec.name}"
        work = pools.background.get(pool.spec.name)
        runs = f"; {work.name} runs there in the background" if work and not work.is_over else ""
        here = f"pool {pool.spec.name!r} is up in this notebook: {pool.spec}{runs}"
        if pool.lines.is_cut:
            here += "; its line is cut, and this tries to reach it"
        lines.append(
            f"{here}. %%sky_remote{which} runs a cell on it, and there is nothing to attach"
        )
    return "\n".join(lines)


def is_gone(session: Session, name: str) -> bool:
    """Whether the pool of this name was lost, and no pool of this notebook has that name."""
    if session.pools.live(name) is not None or session.pools.lost(name) is None:
        return False
    ours = ("", notebook_of(session.shell.user_ns))
    alive = [left.entry for left in session.pools.others() if left.entry.notebook in ours]
    return all(entry.spec.name != name for entry in alive)


def adopted(session: Session, name: str) -> str:
    """The name of the pool with this name or id, attached to if an earlier kernel of this notebook has left it.

    A pool of another notebook is named by its id alone. Raises `PoolError`.
    """
    notebook = notebook_of(session.shell.user_ns)
    if session.pools.live(name) is None:
        there = session.pools.others()
        left = next((each for each in there if each.entry.pool_id == name), None)
        if left is None and any(each.entry.spec.name == name for each in there):
            left = choose(name, notebook, there)
            if left.entry.notebook not in ("", notebook):
                raise PoolError(
                    name,
                    f"the pool {name!r} that is alive is {left.whose()}, {left.doing()}: "
                    f"%sky down pool={left.entry.pool_id} ends it all the same",
                )
        if left is not None:
            name = session.pools.adopt(left, session.display(quiet=True)).spec.name
    return live_pool(session, name).spec.name


def earlier_kernels_pools(session: Session) -> list[FoundPool]:
    """The pools that earlier kernels of this notebook have left; none where the front end does not tell its name."""
    notebook = notebook_of(session.shell.user_ns)
    return [left for left in session.pools.others() if notebook and left.entry.notebook == notebook]


@contextlib.contextmanager
def warnings_printed() -> Generator[None]:
    """Print the warnings of machines as lines at the end, also after an error."""
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            yield
    finally:
        for each in caught:
            if each.category is UserWarning:
                print(each.message)
            else:  # not of machines
                warnings.showwarning(each.message, each.category, each.filename, each.lineno)
