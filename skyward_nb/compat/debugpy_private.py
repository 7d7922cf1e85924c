"""debugpy's debugger in this process, pydevd: files that it takes for there, and programs that it leaves alone.

It sets no breakpoint in a file that does not exist, and cells of a notebook are no files on other machines. It starts
Python programs of a kernel whose debugger is on under a debugger of their own, which waits for a front end: no pool
would start. Of a variable that could not be set it says that it was, with the old value. Where the names are missing,
breakpoints stop ranks of this machine alone, pools start if the extension was loaded before the debugger was turned on,
a variable that was not set shows its old value, and a breakpoint at raised exceptions stops at those, too, that
this package catches.

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


def refuse_values() -> None:
    """From now on a variable of a frame that cannot be set to a value is not said to have been; debugpy has begun already."""
    frames: Any = importlib.import_module("_pydevd_bundle.pydevd_suspended_frames")
    variables: Any = importlib.import_module("_pydevd_bundle.pydevd_vars")
    kind: Any = getattr(frames, "_FrameVariable", None)
    change: Any = getattr(variables, "change_attr_expression", None)
    if not hasattr(kind, "change_variable") or change is None:
        return

    def change_variable(
        self: Any, name: str, value: str, py_db: Any, fmt: Any = None, scope: Any = None
    ) -> Any:
        try:
            found = eval(value, self.frame.f_globals, self.frame.f_locals)  # noqa: S307 - as it does
        except Exception:  # noqa: BLE001 - whatever the value raises
            return None
        change(self.frame, name, value, py_db, found, scope)
        return self.get_child_variable_named(name, fmt=fmt, scope=scope)

    kind.change_variable = change_variable


def stop_at_no_exception_of(*folders: str) -> None:
    """From now on nothing stops at exceptions that code in these folders raises, or has libraries raise; debugpy is there."""
    kind: Any = getattr(sys.modules.get("pydevd"), "PyDB", None)
    before: Any = getattr(kind, "exclude_exception_by_filter", None)
    if before is None or before.__module__ == __name__:
        return

    def exclude_exception_by_filter(self: Any, exception_breakpoint: Any, trace: Any) -> bool:
        if before(self, exception_breakpoint, trace):
            return True
        frame = trace.tb_frame
        if "__traceback_maker" in frame.f_code.co_names:
            return True  # tblib has no other way to make a traceback
        while frame is not None and not frame.f_code.co_filename.startswith(folders):
            if self.in_project_scope(frame):
                return False
            frame = frame.f_back
        return frame is not None

    kind.exclude_exception_by_filter = exclude_exception_by_filter


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
