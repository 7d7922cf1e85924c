"""debugpy's debugger in this process, pydevd: files that it takes for there, and programs that it leaves alone.

It sets no breakpoint in a file that does not exist, and cells of a notebook are no files on other machines. It starts
Python programs of a kernel whose debugger is on under a debugger of their own, which waits for a front end: no pool
would start. Where the names are missing, breakpoints stop ranks of this machine alone, and pools start if the
extension was loaded before the debugger was turned on.

`connect` waits for the other end without a limit: where that fails, `end_wait` has it return.

Seen with debugpy 1.8.22.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any


def take_for_files(is_file: Callable[[str], bool]) -> None:
    """From now on names are files' for which this is true, too; debugpy has begun already."""
    utilities: Any = importlib.import_module("pydevd_file_utils")
    exists: Callable[[str], bool] | None = getattr(utilities, "exists", None)
    if exists is not None:
        utilities.exists = lambda filename: exists(filename) or is_file(filename)


def leave_programs_alone() -> None:
    """From now on programs start as they are said to, where debugpy has begun already."""
    monkey: Any = sys.modules.get("_pydev_bundle.pydev_monkey")
    if hasattr(monkey, "patch_args"):
        monkey.patch_args = lambda args, is_exec=False: args


def end_wait() -> None:
    """Have a `debugpy.connect` that waits in another thread return, if it does; `give_up` is to follow."""
    pydevd: Any = sys.modules.get("pydevd")
    debugger: Any = None if pydevd is None else pydevd.get_global_debugger()
    if debugger is not None:
        debugger.ready_to_run = True


def give_up() -> None:
    """End what `debugpy.connect` has begun: nothing is traced any more."""
    pydevd: Any = sys.modules.get("pydevd")
    if pydevd is not None:
        pydevd.stoptrace()
