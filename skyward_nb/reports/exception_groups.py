"""Exception groups of ranks, shown as other exceptions are.

IPython lets an exception render itself, but not a group: of that it prints Python's own traceback
to standard error, with its own frames and ours above those of the cell.
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
        value = sys.exc_info()[1] if exc_tuple is None else exc_tuple[1]
        render = getattr(value, "_render_traceback_", None)
        if isinstance(value, BaseExceptionGroup) and render is not None:
            ipython_private.exception_info(shell, exc_tuple)
            ipython_private.show_traceback(shell, type(value), value, render())
        else:
            before(exc_tuple, *args, **kwargs)

    showtraceback.shows_groups = True  # type: ignore[attr-defined]
    shell.showtraceback = showtraceback


def is_shown(shell: InteractiveShell) -> bool:
    """Whether the shell shows groups so."""
    return getattr(vars(shell).get("showtraceback"), "shows_groups", False)


def leave(shell: InteractiveShell) -> None:
    """Have the shell show groups as it did."""
    if is_shown(shell):
        del shell.showtraceback
