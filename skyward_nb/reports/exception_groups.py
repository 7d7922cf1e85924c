"""Exception groups of ranks, shown as other exceptions are.

IPython lets an exception render itself, but not a group, nor what was raised while one was handled: of those it
prints Python's own traceback to standard error, with its own frames and ours above those of the cell.
"""

from __future__ import annotations

import sys
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

from skyward_nb.compat import ipython_private


def show_groups(shell: InteractiveShell) -> None:
    """From now on the shell shows groups that render themselves as they do; others as before."""
    if is_shown(shell):
        return
    before = shell.showtraceback

    def showtraceback(exc_tuple: Any = None, *args: Any, **kwargs: Any) -> None:
        value: Any = sys.exc_info()[1] if exc_tuple is None else exc_tuple[1]
        render = getattr(value, "_render_traceback_", None)
        if render is not None and has_group(value):
            ipython_private.exception_info(shell, exc_tuple)
            ipython_private.show_traceback(shell, type(value), value, render())
        else:
            before(exc_tuple, *args, **kwargs)

    showtraceback.shows_groups = True  # type: ignore[attr-defined]
    shell.showtraceback = showtraceback


def has_group(error: BaseException | None) -> bool:
    """Whether IPython takes this for a group: it is one, or came up while one was handled."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, BaseExceptionGroup):
            return True
        seen.add(id(error))
        error = error.__context__
    return False


def is_shown(shell: InteractiveShell) -> bool:
    """Whether the shell shows groups so."""
    return getattr(vars(shell).get("showtraceback"), "shows_groups", False)


def leave(shell: InteractiveShell) -> None:
    """Have the shell show groups as it did."""
    if is_shown(shell):
        del shell.showtraceback
