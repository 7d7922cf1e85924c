"""The cell of JupyterLab or Notebook 7 that a picture is in: what is said to its pages beside the picture.

Lab shows outputs in the page that ran the cell alone. `mark` tells other pages of the same notebook (another
tab, one that was opened in mid-run) which cell they belong to: `labextension/src/otherPages.ts` reads it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from skyward_nb.show.cell_outputs import CellOutputs
from skyward_nb.show.kernel_status import BusyStatus

_LIVE = 2
"""Outputs of a picture while it goes on: the kept one, and the widgets."""


class LabCell:
    """One cell while a picture is drawn in it."""

    def __init__(
        self, outputs: CellOutputs, request: Mapping[str, Any], status: BusyStatus
    ) -> None:
        self._outputs = outputs
        self._request = outputs.cell
        self._id = str(request.get("metadata", {}).get("cellId", ""))
        self._status = status
        self._is_alone = False
        self.name: str = f"sky-{os.urandom(6).hex()}"
        """The class of the kept picture."""

    def mark(self, live: str = "") -> dict[str, Any]:
        """What goes with the picture, and into no file: its cell, who ran that, and the widget that shows it `live`."""
        mark = {"cell": self._id, "request": self._request, "name": self.name, "live": live}
        return {"skyward_nb": mark}

    def has_shown(self) -> None:
        """The kept picture and the widgets were shown now."""
        self._is_alone = self._outputs.count() == _LIVE

    def keep_value_of(self, run: str) -> None:
        """Keep what the cell shows as its value, for pages that see it too late."""
        self._outputs.keep_value_of(run, self._request)

    def take_back(self) -> bool:
        """Have the next output take their place; whether that can be: the cell runs, and has shown nothing else."""
        return (
            self._is_alone
            and self._status.goes_on()
            and self._outputs.clear_if(self._request, _LIVE)
        )
