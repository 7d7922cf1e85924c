"""What the running cell has shown so far, counted by what the kernel sends.

Front ends take outputs back only all at once (`clear_output`). So a picture may do that only where everything
that its cell has shown is its own.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from typing import Any, cast

from skyward_nb.show.kept_pictures import keep_value

_SHOWN = {"stream", "display_data", "execute_result", "error", "input_request", "clear_output"}
"""What leaves something in a cell, or takes something away; a front end keeps what was typed in, too."""
_MOST_CELLS = 64


class CellOutputs:
    """Counts what each of the last cells has shown; for any thread."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._send = kernel.session.send
        self._lock = threading.RLock()
        # What the running cell showed before this is not known.
        self._counts = {self.cell: 1}
        self._runs_of: dict[str, str] = {}
        """By cell, the run that its value is of."""
        kernel.session.send = self._count_and_send
        os.register_at_fork(after_in_child=self._in_child)

    @classmethod
    def in_lab(cls, kernel: Any) -> CellOutputs | None:
        """Those of this kernel, counted from the first call on, if JupyterLab or Notebook 7 runs the present cell."""
        # What they send with each cell, and no other front end does.
        if kernel is None or "deletedCells" not in kernel.get_parent().get("metadata", {}):
            return None
        found = getattr(kernel.session.send, "__self__", None)
        return found if isinstance(found, cls) else cls(kernel)

    @classmethod
    def forget(cls, kernel: Any) -> None:
        """Count no more, if it does."""
        found = getattr(kernel and kernel.session.send, "__self__", None)
        if isinstance(found, cls):
            kernel.session.send = found._send

    @property
    def cell(self) -> str:
        """The request that is answered now, or was last."""
        return _id_of(self._kernel.get_parent())

    def count(self) -> int:
        """How much the running cell has shown."""
        return self._counts.get(self.cell, 0)

    def keep_value_of(self, run: str, cell: str) -> None:
        """What this cell shows as its value from now on is kept as the value of this run."""
        self._runs_of[cell] = run
        _forget_oldest(self._runs_of)

    def clear_if(self, cell: str, count: int) -> bool:
        """Have the next output take the place of all that the running cell has shown, if it is this cell, and so much."""
        for stream in (sys.stdout, sys.stderr):  # what was printed counts, too
            stream.flush()
        with self._lock:
            if self.cell != cell or self._counts.get(cell) != count:
                return False
            socket = self._kernel.iopub_socket
            self._kernel.send_response(socket, "clear_output", {"wait": True})
            return True

    def _count_and_send(self, stream: Any, what: Any, *args: Any, **options: Any) -> Any:
        """`Session.send`."""
        kind, cell = _kind_and_cell(what, *args, **options)
        if kind not in _SHOWN:
            return self._send(stream, what, *args, **options)
        with self._lock:
            self._counts[cell] = self._counts.pop(cell, 0) + 1
            _forget_oldest(self._counts)
            sent = self._send(stream, what, *args, **options)
        run = self._runs_of.get(cell, "")
        if kind == "execute_result" and run and isinstance(what, dict):
            content = cast("Mapping[str, Any]", what).get("content", {})
            keep_value(run, {each: content.get(each, {}) for each in ("data", "metadata")})
        return sent

    def _in_child(self) -> None:
        """A forked child has the lock as it was."""
        self._lock = threading.RLock()


def _forget_oldest(by_cell: dict[str, Any]) -> None:
    """Forget the cell that was noted first, where there are too many."""
    if len(by_cell) > _MOST_CELLS:
        del by_cell[next(iter(by_cell))]


def _kind_and_cell(
    what: Any, content: Any = None, parent: Any = None, *_: Any, **__: Any
) -> tuple[str, str]:
    """The type of a message, and the request that it belongs to."""
    if isinstance(what, str):
        is_caught = what == "comm_msg" and _is_catching(content)
        return "display_data" if is_caught else what, _id_of(parent)
    message = cast("Mapping[str, Any]", what or {})
    return message.get("msg_type", ""), _id_of(message.get("parent_header"))


def _is_catching(content: Any) -> bool:
    """Whether a widget says that it catches what the cell shows: it keeps it beside what other cells have shown in it."""
    for name in ("data", "state", "msg_id"):
        content = (
            cast("Mapping[str, Any]", content).get(name) if isinstance(content, dict) else None
        )
    return bool(content)


def _id_of(request: Any) -> str:
    """The id of a message, or of its header."""
    found = cast("Mapping[str, Any]", request or {})
    return found.get("header", found).get("msg_id", "")
