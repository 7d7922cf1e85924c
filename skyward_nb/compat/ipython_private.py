"""IPython's private names: numbers of cells, and how tracebacks are shown.

Without them there is no notebook: where one is missing, AttributeError or ImportError says which.

Seen with IPython 9.0.0 and 9.18.1.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.core.ultratb import SyntaxTB


def cell_number(shell: InteractiveShell, filename: str) -> int | None:
    """The number of the cell whose code carries this file name; None where it is no cell's."""
    return shell.compile._filename_map.get(filename)


def learn_cell(shell: InteractiveShell, filename: str, number: int) -> None:
    """Have the shell call this file `Cell In[number]`."""
    shell.compile._filename_map[filename] = number


def exception_info(
    shell: InteractiveShell, given: Any = None
) -> tuple[type[BaseException], BaseException | None, TracebackType | None]:
    """The exception that is given, or handled now; the shell notes it as the last one, for debuggers."""
    return shell._get_exc_info(given)


def show_traceback(
    shell: InteractiveShell, kind: type[BaseException], value: BaseException, lines: list[str]
) -> None:
    """Have the shell show an exception by these lines, as it shows its own."""
    shell._showtraceback(kind, value, lines)


def theme_of(renderer: SyntaxTB) -> str:
    """The name of the colours that a renderer of exceptions has."""
    return renderer._theme_name


def show_files_plainly(more_lines: int) -> None:
    """Have tracebacks show files with more lines without parsing them."""
    from IPython.core import ultratb

    ultratb.FAST_THRESHOLD = more_lines


def print_by_repr() -> Callable[..., None]:
    """The function with which `IPython.lib.pretty` prints objects of unknown types."""
    from IPython.lib.pretty import _repr_pprint

    return _repr_pprint
