"""The canvas for this process: widgets, bundles or log lines."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from skyward_nb.show.canvas import BundleCanvas, Canvas, WidgetCanvas
from skyward_nb.show.kernel_status import BusyStatus
from skyward_nb.show.log import LogCanvas

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def canvas_of(shell: InteractiveShell | None) -> Canvas:
    """The canvas of the running cell or script; widgets only where a person may be looking.

    Programs that execute notebooks take no input: they get bundles. `SKYWARD_DISPLAY=html` or `widgets`
    overrides that.
    """
    kernel = getattr(shell, "kernel", None)
    if shell is None or kernel is None:
        return LogCanvas()
    looks = kernel.get_parent().get("content", {}).get("allow_stdin", False)
    wanted = os.environ.get("SKYWARD_DISPLAY") or ("widgets" if looks else "html")
    return WidgetCanvas(BusyStatus(shell)) if wanted == "widgets" else BundleCanvas()
