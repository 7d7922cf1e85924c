"""The user's code by the file names that frames of ranks carry: what it is called here, and its lines."""

from __future__ import annotations

import linecache
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from skyward_nb.compat.ipython_private import cell_number
from skyward_nb.hangs.rank_locations import Source
from skyward_nb.protocol.commands import SourceFile
from skyward_nb.protocol.message_parts import RunCard
from skyward_nb.words.source_code import is_library

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from skyward_nb.names.ledger import SourceFinder


def cell_source(shell: InteractiveShell | None, filename: str) -> SourceFile | None:
    """The text of a notebook cell by the file name its code carries."""
    number = cell_number(shell, filename) if shell is not None else None
    if number is None:
        return None
    return SourceFile(filename, number, "".join(linecache.getlines(filename)))


def sources(shell: InteractiveShell | None, card: RunCard | None = None) -> Source:
    """Finds lines in cells of this notebook, in the cell of `card`, and in the project's files.

    The cell of the card may be another notebook's.
    """

    def find(filename: str, line: int) -> tuple[str, str] | None:
        if card is not None and filename == card.filename:
            return f"Cell In[{card.number}]", _line(card.text, line)
        if (cell := cell_source(shell, filename)) is not None:
            return f"Cell In[{cell.number}]", _line(cell.text, line)
        if is_library(filename) or not Path(filename).is_file():
            return None
        return Path(filename).name, linecache.getline(filename, line)

    return find


def is_own(module: str) -> bool:
    """Whether a top-level module of this name is beside the notebook, not an installed package's."""
    try:
        spec = getattr(sys.modules.get(module), "__spec__", None) or find_spec(module)
    except (ImportError, ValueError):
        return False
    places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
    return any(
        place and not is_library(place) and Path(place).is_relative_to(Path.cwd())
        for place in places
    )


def _line(text: str, number: int) -> str:
    lines = text.split("\n")
    return lines[number - 1] if 0 < number <= len(lines) else ""


def source_finder(shell: InteractiveShell | None) -> SourceFinder:
    """Finds the text of the user's code by the file name it carries: a cell, or a file of a project."""

    def find(filename: str) -> SourceFile | None:
        if (cell := cell_source(shell, filename)) is not None:
            return cell
        if is_library(filename) or not Path(filename).is_file():
            return None
        return SourceFile(filename, 0, "".join(linecache.getlines(filename)))

    return find
