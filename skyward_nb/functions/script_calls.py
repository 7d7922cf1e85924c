"""`sky.run`: a script on the ranks of a pool, from Python."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, cast

from skyward_nb.functions.compute import Compute
from skyward_nb.functions.get_pool import CellPool, get_pool
from skyward_nb.options.cell_options import CellOptions
from skyward_nb.options.option_table import BY_NAME
from skyward_nb.reports.task_script import script_of
from skyward_nb.words.errors import OptionError
from skyward_nb.workdir.patterns import read_pattern

if TYPE_CHECKING:
    from skyward_nb.notebook.run_handle import RunHandle


def run(
    script: str | os.PathLike[str],
    args: Sequence[object] = (),
    *,
    pool: Compute | CellPool | str | None = None,
    module: bool = False,
    ranks: str = "all",
    stdout: str = "all",
    stderr: str = "all",
    timeout: float | str | None = None,
    on_error: Literal["stop", "wait"] = "stop",
    fetch: str | Sequence[str] = (),
    folder: Literal["auto", "all", "none"] = "auto",
    detach: bool = False,
    quiet: bool = False,
) -> RunHandle | None:
    """Run a script as `__main__` on ranks of a pool, as `%sky run` does; or a `module`, as `python -m` does.

    `args` are its words, as text. `pool` is a pool or the name of one; without it, that of the notebook's
    cells, which is brought up; a task file (`train.yaml`) says which, and `args` are options of `sky launch`.
    On other machines it works in a copy of its `folder`, of which files that match `fetch` are brought back. `timeout` is in seconds, or as in `"10m"`. With `detach` it goes on in the
    background, and its handle is returned. Raises `OptionError` for no such script, SyntaxError for one
    that is no Python, `PoolError` where there is no pool, and what the script raises.
    """
    if isinstance(args, str):
        raise OptionError("args", f"args={args!r}: give a list of words, such as {args.split()!r}")
    words = [*(["-m"] if module else []), os.fspath(script), *map(str, args)]
    found = script_of(words, "sky.run(FILE, args=[...])")
    found.check()
    given: dict[str, object] = {
        "ranks": ranks, "stdout": stdout, "stderr": stderr, "on_error": on_error,
        "detach": detach, "quiet": quiet, "folder": folder,
    }  # fmt: skip
    if patterns := (fetch,) if isinstance(fetch, str) else tuple(fetch):
        given["fetch"] = tuple(read_pattern("fetch", each) for each in patterns)
    if timeout is not None:
        given["timeout"] = f"{timeout}s" if isinstance(timeout, int | float) else timeout
    default = CellOptions()
    stated = {
        name: BY_NAME[name].value(value) if isinstance(value, str) else value
        for name, value in given.items()
        if name in ("timeout", "fetch") or value != getattr(default, name)
    }
    there = get_pool(pool or "default") if isinstance(pool, str | None) else pool
    return cast("RunHandle | None", there.run_script(found, CellOptions.of(stated)))
