"""debugpy's debugger in this process, pydevd: files that it takes for there.

It sets no breakpoint in a file that does not exist, and cells of a notebook are no files on other machines. Where
the name is missing, breakpoints stop ranks of this machine alone.

Seen with debugpy 1.8.22.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def take_for_files(is_file: Callable[[str], bool]) -> None:
    """From now on names are files' for which this is true, too; debugpy has begun already."""
    utilities: Any = importlib.import_module("pydevd_file_utils")
    exists: Callable[[str], bool] | None = getattr(utilities, "exists", None)
    if exists is not None:
        utilities.exists = lambda filename: exists(filename) or is_file(filename)
