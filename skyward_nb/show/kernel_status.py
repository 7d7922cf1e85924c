"""The kernel's status, said again while a cell runs.

JupyterLab opens a subshell for widgets that it meets, and takes the end of that request for the end of the
cell (jupyterlab#10701): it shows an idle kernel while the cell runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_AFTER = (0.5, 2.0, 5.0, 15.0)
"""Seconds after which a front end has opened its subshell, or is late with it, or later still."""


class BusyStatus:
    """Says that the kernel is busy, some time after widgets were made, unless the cell has ended by then.

    Times are those of one clock.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._kernel: Any = shell.kernel  # type: ignore[attr-defined]
        self._cell = shell.execution_count
        self._due: list[float] = []

    def widgets_made(self, now: float) -> None:
        """New widgets are shown."""
        self._due = [now + seconds for seconds in _AFTER]

    def is_due(self, now: float) -> bool:
        """Whether something is to be said."""
        return bool(self._due) and now >= self._due[0]

    def say_if_due(self, now: float) -> None:
        """Say so if it is time to."""
        if not self.is_due(now):
            return
        self._due = [due for due in self._due if due > now]
        if self.goes_on():
            self._kernel.send_response(
                self._kernel.iopub_socket, "status", {"execution_state": "busy"}
            )
        else:
            self._due = []

    def goes_on(self) -> bool:
        """Whether the cell goes on: its number is that of the next cell once it has ended.

        Cells that are not kept in the history have none.
        """
        is_kept = self._kernel.get_parent().get("content", {}).get("store_history", False)
        return is_kept and self._shell.execution_count == self._cell
