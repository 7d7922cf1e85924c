"""Which front end asked for the running cell, told by its request: a kernel may have several at once.

Environment variables name the program that started the kernel; on a remote server that is no front end. Seen with
VS Code 1.139 and its Jupyter extension 2026.6, JupyterLab 4.4 to 4.6, and Notebook 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any


class FrontEnd(Enum):
    """A front end whose words or pictures differ."""

    JUPYTERLAB = "JupyterLab, or Notebook 7"
    VSCODE = "VS Code"
    ANOTHER = "another one"


def front_end_of(request: Mapping[str, Any]) -> FrontEnd:
    """The front end that sent an `execute_request`."""
    metadata = request.get("metadata") or {}
    if str(metadata.get("cellId", "")).startswith("vscode-notebook-cell:"):
        return FrontEnd.VSCODE
    # What these two send with each cell, and no other front end does.
    return FrontEnd.JUPYTERLAB if "deletedCells" in metadata else FrontEnd.ANOTHER


def present_front_end(shell: object) -> FrontEnd:
    """The one of the cell that runs in this shell."""
    kernel = getattr(shell, "kernel", None)
    return FrontEnd.ANOTHER if kernel is None else front_end_of(kernel.get_parent())
