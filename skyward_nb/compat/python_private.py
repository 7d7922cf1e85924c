"""Python's private names: the threads of executors, as they end with the process, finalizers, as they run then, and the environment.

Where one is missing, AttributeError: a script's executors would keep its rank waiting, its temporary folders would stay, and
a cell would ask for each variable.

Seen with Python 3.11 to 3.14.
"""

from __future__ import annotations

import os
import sys
import weakref
from typing import Any


def end_executor_threads() -> None:
    """Let threads of executors end once their work is done, as at Python's end; later ones may begin."""
    module = sys.modules.get("concurrent.futures.thread")
    if module is not None:
        module._python_exit()
        module.__dict__["_shutdown"] = False


def finalizers() -> list[Any]:
    """All `weakref.finalize` of this process that have not run, the first made first."""
    return [*weakref.finalize._registry]  # type: ignore[attr-defined]


def environment() -> dict[Any, Any]:
    """The environment of this process as it is now, to be compared with a later one: a copy in one step."""
    return dict(os.environ._data)  # type: ignore[attr-defined]
