"""Exception groups of ranks, shown as other exceptions are.

IPython lets an exception render itself, but not a group: of that it prints Python's own traceback
to standard error, with its frames and ours above those of nobody's cell.
"""

from __future__ import annotations

import sys
from typing import Any

from IPython.core.interactiveshell import InteractiveShell


def show_group(shell: InteractiveShell, error: BaseException) -> None:
    """Have the next traceback that the shell shows be `error`'s own lines, if it is that error."""
    shown = shell.showtraceback
    was_set = "showtraceback" in vars(shell)

    def showtraceback(exc_tuple: Any = None, *args: Any, **kwargs: Any) -> None:
        if was_set:
            shell.showtraceback = shown
        else:
            del shell.showtraceback
        value = sys.exc_info()[1] if exc_tuple is None else exc_tuple[1]
        render = getattr(error, "_render_traceback_", None)
        if value is error and render is not None:
            shell._showtraceback(type(error), error, render())
        else:
            shown(exc_tuple, *args, **kwargs)

    shell.showtraceback = showtraceback
